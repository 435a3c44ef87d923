package policy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// warnings says what an experienced reader would point at in a launch.
func warnings(l Launch) []string {
	s := l.Server
	var out []string
	for _, p := range unpinned(s.Command, s.Args) {
		out = append(out, fmt.Sprintf("fetches %s without an exact version: what runs can change without asking again", p))
	}
	switch {
	case l.CommandDigest != "":
		out = append(out, "runs a file of this project; a change of its content asks again")
	case within(l.ResolvedCommand, l.Project), s.Command != "" && projectFile(s.Command, l.Project):
		out = append(out, "runs a file of this project, whose content is not checked")
	}
	bound := map[string]bool{}
	for _, f := range l.Files {
		bound[f.Argument] = true
		out = append(out, fmt.Sprintf("%s is a file of this project; a change of its content asks again, one of what it loads does not", shown(f.Argument)))
	}
	files := slices.Clone(s.Args)
	for _, command := range l.Executes {
		files = append(files, strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" \t\n;|&()<>'\"", r) })...)
	}
	for _, f := range files {
		if !bound[f] && projectFile(f, l.Project) {
			out = append(out, fmt.Sprintf("%s may be a file of this project; a change of its content does not ask again", shown(f)))
		}
	}
	if takesCode(s.Command, s.Args) {
		out = append(out, "the arguments are a program of their own: read them to the end")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if what := effect(name, s.Env[name].Reveal()); what != "" {
			out = append(out, name+" "+what)
		}
	}
	if s.EnvFile != "" && !bound[s.EnvFile] {
		out = append(out, fmt.Sprintf("the variables in %s can change without asking again", shown(s.EnvFile)))
	}
	for _, p := range config.NoEffect(s) {
		out = append(out, p.Message)
	}
	return out
}

// within reports whether a path lies in a directory.
func within(path, dir string) bool {
	return dir != "" && (strings.HasPrefix(path, strings.TrimRight(dir, `/\`)+"/") || strings.HasPrefix(path, strings.TrimRight(dir, `/\`)+`\`))
}

// scriptName matches names of files that hold code.
var scriptName = regexp.MustCompile(`(?i)\.(?:[cm]?[jt]sx?|py|rb|pl|php|sh|bash|zsh|ps1|bat|cmd|lua|jar|wasm|exe|toml|ya?ml|json)$`)

// IsCode reports whether a file holds code or configuration, by its name.
func IsCode(path string) bool { return scriptName.MatchString(path) }

// IsInterpreter reports whether a command runs the file that is its first
// argument.
func IsInterpreter(command string) bool {
	name := strings.TrimRight(programName(command), ".0123456789")
	if _, ok := inlineCode[name]; ok {
		return true
	}
	return slices.Contains([]string{"php", "lua", "java", "tsx", "ts-node", "rscript", "julia", "dotnet", "osascript"}, name)
}

// projectFile reports whether an argument looks like a file of the project: a
// relative path, or an absolute one inside.
func projectFile(arg, project string) bool {
	if strings.HasPrefix(arg, "-") {
		_, value, ok := strings.Cut(arg, "=")
		return ok && projectFile(value, project)
	}
	switch {
	case strings.Contains(arg, "://"):
		return false
	case strings.HasPrefix(arg, "${workspace"), within(arg, project):
		return true
	case strings.HasPrefix(arg, "/"), strings.HasPrefix(arg, "~"), strings.HasPrefix(arg, "@"), len(arg) > 1 && arg[1] == ':':
		return false
	}
	return strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") || strings.HasPrefix(arg, `.\`) || scriptName.MatchString(arg)
}

// effect says what a variable that an entry sets may change, nothing if it is
// known to be harmless. What a template gets from the host is said elsewhere.
func effect(name, value string) string {
	upper := strings.ToUpper(name)
	switch {
	case harmless(upper):
		return ""
	case loadsCode(upper):
		return "can change which code runs"
	case strings.Contains(upper, "PROXY"), strings.Contains(value, "://"):
		return "can change where data goes"
	case strings.ContainsAny(value, `/\`), strings.HasPrefix(value, "~"):
		return "names a file or directory, which the program may read, write or run"
	case strings.HasPrefix(value, "${") && strings.HasSuffix(value, "}") && !strings.Contains(value, ":-"):
		return "" // a value of the host's own
	}
	return "is set by the project; what it changes is up to the program"
}

// harmless reports whether a variable is known to decide about looks and amounts
// alone.
func harmless(name string) bool {
	switch name {
	case "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "COLUMNS", "LINES",
		"DEBUG", "VERBOSE", "LOG_LEVEL", "LOGLEVEL", "RUST_LOG", "RUST_BACKTRACE", "NODE_ENV", "PYTHONUNBUFFERED", "PYTHONIOENCODING", "PYTHONUTF8",
		"PYTHONDONTWRITEBYTECODE", "CI", "GORACE", "GOMAXPROCS", "DISABLE_TELEMETRY", "DO_NOT_TRACK":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}

// loadsCode reports whether a variable decides which code programs run.
func loadsCode(name string) bool {
	switch name {
	case "PATH", "PATHEXT", "HOME", "USERPROFILE", "SHELL", "COMSPEC", "ENV", "BASH_ENV", "ZDOTDIR", "IFS", "PROMPT_COMMAND", "EDITOR", "VISUAL", "PAGER", "BROWSER",
		"CLASSPATH", "JAVA_HOME", "_JAVA_OPTIONS", "PERL5OPT", "PERL5LIB", "RUBYOPT", "RUBYLIB", "GEM_HOME", "GEM_PATH", "R_HOME", "LUA_PATH", "LUA_CPATH",
		"VIRTUAL_ENV", "CONDA_PREFIX", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "KUBECONFIG", "DOCKER_HOST", "DOCKER_CONFIG":
		return true
	}
	for _, prefix := range []string{"LD_", "DYLD_", "GIT_", "NPM_", "NODE_", "PIP_", "UV_", "PYTHON", "GO", "CARGO_", "RUST", "JAVA_", "JDK_", "MAVEN_", "GRADLE_", "BUN_", "DENO_", "YARN_", "PNPM_", "XDG_", "SSH_", "BUNDLE_", "COMPOSER_", "PHP"} {
		if strings.HasPrefix(name, prefix) && !strings.Contains(name, "TOKEN") && !strings.Contains(name, "PASSWORD") {
			return true
		}
	}
	return false
}

// inlineCode maps a program to the options after which its arguments are code.
var inlineCode = map[string]*regexp.Regexp{
	"sh": shellOption, "bash": shellOption, "zsh": shellOption, "dash": shellOption, "ksh": shellOption, "ash": shellOption, "fish": shellOption,
	"cmd":        regexp.MustCompile(`(?i)^/[ck]`),
	"powershell": powershellOption, "pwsh": powershellOption,
	"python": regexp.MustCompile(`^-[a-zA-Z]*c$`), "python3": regexp.MustCompile(`^-[a-zA-Z]*c$`),
	"node": evalOption, "bun": evalOption, "ruby": evalOption, "perl": evalOption, "deno": regexp.MustCompile(`^eval$`),
}

var (
	shellOption      = regexp.MustCompile(`^-[a-zA-Z]*c[a-zA-Z]*$`)
	powershellOption = regexp.MustCompile(`(?i)^[-/](?:c|co.*|e|en.*|ec)$`)
	evalOption       = regexp.MustCompile(`^(?:-[a-zA-Z]*[eEp]|--eval|--print)(?:=.*)?$`)
)

// takesCode reports whether the arguments hold code for an interpreter.
func takesCode(command string, args []string) bool {
	option, ok := inlineCode[programName(command)]
	return ok && slices.ContainsFunc(args, option.MatchString)
}

// programName returns the name of a program without directory and extension.
func programName(command string) string {
	name := strings.ToLower(command[strings.LastIndexAny(command, `/\`)+1:])
	for _, ext := range []string{".exe", ".cmd", ".bat", ".ps1"} {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// runner is a program that fetches a package and runs it.
type runner struct {
	words       []string // how the command line begins
	packageFlag []string // options that name a package
	valueFlag   []string // options with a value that does not
	pinned      *regexp.Regexp
}

var (
	exactNpm    = regexp.MustCompile(`^(?:@[^/@]+/)?[^/@]+@v?\d+\.\d+\.\d+[\w.+-]*$`)
	exactPython = regexp.MustCompile(`^[\w.\-\[\],]+(?:===?|@)\d[\w.+!-]*$`)

	npmPackage = []string{"-p", "--package"}
	npmValue   = []string{"-c", "--call", "--registry", "--prefix", "--userconfig", "--cache", "-w", "--workspace", "--loglevel"}
	uvPackage  = []string{"--from"}
	uvValue    = []string{"--with", "-p", "--python", "-i", "--index-url", "--index", "--default-index", "--extra-index-url", "-f", "--find-links", "-c", "--constraints", "--directory", "--project", "--env-file"}
)

var runners = []runner{
	{[]string{"npx"}, npmPackage, npmValue, exactNpm},
	{[]string{"pnpx"}, npmPackage, npmValue, exactNpm},
	{[]string{"bunx"}, npmPackage, npmValue, exactNpm},
	{[]string{"npm", "exec"}, npmPackage, npmValue, exactNpm},
	{[]string{"npm", "x"}, npmPackage, npmValue, exactNpm},
	{[]string{"pnpm", "dlx"}, npmPackage, npmValue, exactNpm},
	{[]string{"yarn", "dlx"}, npmPackage, npmValue, exactNpm},
	{[]string{"bun", "x"}, npmPackage, npmValue, exactNpm},
	{[]string{"uvx"}, uvPackage, uvValue, exactPython},
	{[]string{"uv", "tool", "run"}, uvPackage, uvValue, exactPython},
	{[]string{"pipx", "run"}, []string{"--spec"}, []string{"--python", "--pip-args", "--index-url", "-i"}, exactPython},
}

// unpinned returns the packages that a command line fetches and runs without
// saying which version.
func unpinned(command string, args []string) []string {
	line := append([]string{programName(command)}, args...)
	if line[0] == "cmd" { // cmd /c npx …, as is usual on Windows
		if i := slices.IndexFunc(line, func(w string) bool { return strings.EqualFold(w, "/c") }); i > 0 && i+1 < len(line) {
			line = line[i+1:]
			line[0] = programName(line[0])
		}
	}
	for _, r := range runners {
		if len(line) < len(r.words) || !slices.Equal(line[:len(r.words)], r.words) {
			continue
		}
		return slices.DeleteFunc(r.packages(line[len(r.words):]), func(p string) bool {
			return r.pinned.MatchString(p) || strings.HasPrefix(p, ".") || strings.HasPrefix(p, "/")
		})
	}
	return nil
}

// packages returns what the runner would fetch: the packages that options
// name, else the first argument that is no option.
func (r runner) packages(args []string) []string {
	var named []string
	for i := 0; i < len(args); i++ {
		flag, value, hasValue := strings.Cut(args[i], "=")
		switch {
		case slices.Contains(r.packageFlag, flag):
			if !hasValue && i+1 < len(args) {
				i++
				value = args[i]
			}
			named = append(named, value)
		case !hasValue && slices.Contains(r.valueFlag, flag):
			i++
		case strings.HasPrefix(args[i], "-") && args[i] != "--":
		case args[i] != "--" && len(named) == 0:
			return []string{args[i]}
		case args[i] != "--":
			return named
		}
	}
	return named
}
