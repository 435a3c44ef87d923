package secret

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

const maxEnvFile = 1 << 20

// ReadEnvFile reads the variables of an envFile.
func ReadEnvFile(path string) (map[string]config.Secret, []config.Problem) {
	data, err := readRegular(path)
	if err != nil {
		return nil, []config.Problem{{Severity: config.SeverityWarning, File: path, Message: fmt.Sprintf("the envFile cannot be read: %v", err)}}
	}
	values, problems := ParseEnvFile(data)
	for i := range problems {
		problems[i].File = path
	}
	return values, problems
}

func readRegular(path string) ([]byte, error) {
	// Opening a pipe would wait for somebody to write to it.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err == nil && len(data) > maxEnvFile {
		err = fmt.Errorf("it is larger than %d bytes", maxEnvFile)
	}
	return data, err
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// ParseEnvFile reads lines of the form NAME=value. A value may stand in single
// quotes, which take it as it is, or in double quotes, in which \n, \r, \t and
// a backslash before any other character are understood. # begins a comment, in
// a plain value only after a space. Nothing is expanded. Of several lines for
// one name the last counts. What cannot be read is reported by its line, never
// by its text.
func ParseEnvFile(data []byte) (map[string]config.Secret, []config.Problem) {
	values := map[string]config.Secret{}
	var problems []config.Problem
	n := 0
	for line := range strings.Lines(string(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))) {
		n++
		name, value, err := parseEnvLine(strings.TrimSpace(line))
		switch {
		case err != nil:
			problems = append(problems, config.Problem{Severity: config.SeverityWarning, Line: n, Message: "the line is ignored: " + err.Error()})
		case name != "":
			values[name] = config.NewSecret(value)
		}
	}
	return values, problems
}

func parseEnvLine(line string) (name, value string, err error) {
	if line == "" || line[0] == '#' {
		return "", "", nil
	}
	if rest, ok := strings.CutPrefix(line, "export "); ok {
		line = rest
	}
	name, rest, ok := strings.Cut(line, "=")
	name, rest = strings.TrimSpace(name), strings.TrimSpace(rest)
	switch {
	case !ok:
		return "", "", errors.New("it has no =")
	case !envName.MatchString(name):
		return "", "", errors.New("what stands before the = is no name of a variable")
	case strings.ContainsRune(rest, 0):
		return "", "", errors.New("it holds a null character")
	case rest != "" && (rest[0] == '"' || rest[0] == '\''):
		value, err = unquote(rest)
		return name, value, err
	}
	for i := range rest {
		if rest[i] == '#' && (i == 0 || rest[i-1] == ' ' || rest[i-1] == '\t') {
			rest = rest[:i]
			break
		}
	}
	return name, strings.TrimSpace(rest), nil
}

// unquote reads a quoted value, after which only a comment may follow.
func unquote(s string) (string, error) {
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			if rest := strings.TrimSpace(s[i+1:]); rest != "" && rest[0] != '#' {
				return "", errors.New("text follows the closing quote")
			}
			return b.String(), nil
		case c == '\\' && quote == '"' && i+1 < len(s):
			i++
			switch s[i] {
			case 'n':
				b.WriteByte('\n')
			case 'r':
				b.WriteByte('\r')
			case 't':
				b.WriteByte('\t')
			default:
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", errors.New("the quote is not closed on the same line")
}
