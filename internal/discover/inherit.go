package discover

// Inheritance is what a product's servers get of its environment.
type Inheritance string

const (
	InheritAll     Inheritance = "all"
	InheritSome    Inheritance = "some" // a list of names, or what does not look like a secret
	InheritUnknown Inheritance = ""
)

// inheritance is what is known of the products, from their sources and documents.
// Where it is not known, programs get as little as they do everywhere.
var inheritance = map[string]Inheritance{
	managedProvider:  InheritAll,
	claudeProvider:   InheritAll,
	"crush":          InheritAll,
	"goose":          InheritAll,
	"opencode":       InheritAll,
	"vscode":         InheritAll,
	"zed":            InheritAll,
	"claude-desktop": InheritSome,
	"cline":          InheritSome,
	"codex":          InheritSome,
	"continue":       InheritSome,
	"copilot":        InheritSome,
	"gemini":         InheritSome,
	"inspector":      InheritSome,
	"roo":            InheritSome,
}

// InheritsAll reports whether the servers of a provider get all of its
// environment.
func InheritsAll(provider string) bool { return inheritance[provider] == InheritAll }
