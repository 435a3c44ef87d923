package lane

import (
	"bytes"
	"maps"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// Limits of a plain request.
const (
	maxHeaders = 64
	maxDigits  = 9 // of a Content-Length
)

// A head is that of a plain request:
//
//	POST /path HTTP/1.1
//
// with a path that means itself, exactly one Host and one Content-Length that is
// not zero, and no header that changes how the request or its connection is to
// be read. All is strict; what is doubtful is not plain.
//
// A head remembers what it has read, because a client sends the same one again
// and again, only with another Content-Length.
type head struct {
	text   string // as it was sent
	digits [2]int // where in text the Content-Length is

	path, host string
	header     http.Header // never changed after it was given away
	length     int64       // of the body
	size       int         // of what was read last
}

// What the beginning of a request may turn out to be.
type kind uint8

const (
	partial kind = iota // nobody can tell yet
	plain
	other
)

// read reads the head that data begins with.
func (h *head) read(data []byte) kind {
	if h.again(data) {
		return plain
	}
	const start = "POST /"
	if n := min(len(data), len(start)); string(data[:n]) != start[:n] {
		return other
	}
	end := bytes.Index(data, []byte("\r\n\r\n"))
	if end < 0 {
		if hasBareLF(data) {
			return other
		}
		return partial
	}
	next := head{text: string(data[:end+4]), size: end + 4}
	if !next.parse() {
		return other
	}
	*h = next
	return plain
}

// hasBareLF reports whether a line does not end with CRLF, so that the end of
// the head may look different as well.
func hasBareLF(data []byte) bool {
	return bytes.Count(data, []byte("\n")) != bytes.Count(data, []byte("\r\n"))
}

// again reads a head that is the one before, but for the length.
func (h *head) again(data []byte) bool {
	before, after := h.text[:h.digits[0]], h.text[h.digits[1]:]
	if before == "" || len(data) < len(before) || string(data[:len(before)]) != before {
		return false
	}
	digits := data[len(before):]
	digits = digits[:min(len(digits), maxDigits+1)]
	if n := bytes.IndexByte(digits, '\r'); n >= 0 {
		digits = digits[:n]
	}
	length, ok := parseLength(digits)
	rest := data[len(before)+len(digits):]
	if !ok || len(rest) < len(after) || string(rest[:len(after)]) != after {
		return false
	}
	if length != h.length {
		h.length = length
		h.header = maps.Clone(h.header)
		h.header["Content-Length"] = []string{strconv.FormatInt(length, 10)}
	}
	h.size = len(before) + len(digits) + len(after)
	return true
}

func parseLength(digits []byte) (n int64, ok bool) {
	if len(digits) == 0 || len(digits) > maxDigits || digits[0] == '0' {
		return 0, false
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = 10*n + int64(d-'0')
	}
	return n, true
}

// parse reads text, which ends with an empty line, and reports whether it is
// plain.
func (h *head) parse() bool {
	const method, proto = "POST ", " HTTP/1.1\r\n"
	line, lines, _ := cutLine(h.text)
	target, ok := strings.CutSuffix(h.text[:len(line)+2], proto)
	if !ok {
		return false
	}
	if h.path = target[len(method):]; !isPlainPath(h.path) {
		return false
	}
	count := strings.Count(lines, "\n") - 1
	if count > maxHeaders {
		return false
	}
	h.header = make(http.Header, count)
	values := make([]string, count)
	for {
		if line, lines, ok = cutLine(lines); !ok {
			return false
		}
		if line == "" {
			return h.host != "" && h.length != 0
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !ok || !isToken(name) || !isVisible(value) {
			return false
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if !h.special(name, value, len(h.text)-len(lines)-2) {
			return false
		}
		if name == "Host" {
			continue // which is no header of an http.Request
		}
		if have := h.header[name]; have != nil {
			h.header[name] = append(have, value)
			continue
		}
		values[0] = value
		h.header[name], values = values[:1:1], values[1:]
	}
}

// special looks at the headers that decide whether a request is plain. lineEnd is
// where the line ends.
func (h *head) special(name, value string, lineEnd int) bool {
	switch name {
	case "Host":
		if h.host != "" || !isPlainHost(value) {
			return false
		}
		h.host = value
	case "Content-Length":
		length, ok := parseLength([]byte(value))
		if !ok || h.length != 0 || !strings.HasSuffix(h.text[:lineEnd], value) {
			return false
		}
		h.length = length
		h.digits = [2]int{lineEnd - len(value), lineEnd}
	case "Connection":
		return strings.EqualFold(value, "keep-alive")
	case "Transfer-Encoding", "Te", "Trailer", "Expect", "Upgrade", "Http2-Settings", "Pragma":
		return false
	}
	return true
}

// cutLine cuts text behind its first line, which must end with CRLF.
func cutLine(text string) (line, rest string, ok bool) {
	line, rest, ok = strings.Cut(text, "\n")
	if !ok || !strings.HasSuffix(line, "\r") {
		return "", "", false
	}
	return line[:len(line)-1], rest, true
}

// isPlainPath reports whether a path, which begins with a slash, reads the same
// however it is looked at: there is nothing to unescape, to clean or to take for
// something else.
func isPlainPath(path string) bool {
	for segment := range strings.SplitSeq(strings.TrimSuffix(path[1:], "/"), "/") {
		if segment == "." || segment == ".." || segment == "" && path != "/" {
			return false
		}
		for i := range len(segment) {
			if c := segment[i]; !isAlphanumeric(c) && c != '-' && c != '_' && c != '.' && c != '~' {
				return false
			}
		}
	}
	return true
}

func isPlainHost(host string) bool {
	for i := range len(host) {
		if c := host[i]; !isAlphanumeric(c) && strings.IndexByte("-_.:[]", c) < 0 {
			return false
		}
	}
	return host != ""
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// isToken reports whether name may be that of a header.
func isToken(name string) bool {
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && strings.IndexByte("-_!#$%&'*+.^`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

// isVisible reports whether a value is visible ASCII, spaces and tabs.
func isVisible(value string) bool {
	for i := range len(value) {
		if c := value[i]; (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}
