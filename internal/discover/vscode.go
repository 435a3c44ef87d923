package discover

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/patchbay-mcp/patchbay/config"
)

// vscodeFile reads mcp.json of VS Code, which is there for its servers alone.
func vscodeFile(d *doc) {
	d.expect("servers")
	vscode("servers")(d)
}

// vscode reads servers of VS Code found under the named members, with the
// inputs and the sandbox beside them.
func vscode(path ...string) reader {
	return func(d *doc) {
		parent, pointer, ok := d.find(path[:len(path)-1]...)
		if !ok {
			return
		}
		inputs := d.vscodeInputs(parent, pointer)
		room := maxInputs
		serversAt(func(d *doc, f *config.Fields, e *config.Entry) {
			plain(d, f, e)
			f.Ignore("dev") // how VS Code's debugger attaches
			asked := []json.RawMessage{}
			for _, id := range inputsOf(f.Node) {
				def, ok := inputs[id]
				if !ok {
					f.Report(config.SeverityWarning, "", fmt.Sprintf("no input %q is defined in this file", id), "")
					continue
				}
				if len(def.text) <= room {
					room -= len(def.text)
					asked = append(asked, def.text)
				}
				if def.command != "" {
					e.Executes = append(e.Executes, "the VS Code command "+def.command)
				}
			}
			if len(asked) > 0 {
				list, _ := json.Marshal(asked) // valid JSON already
				e.Server.Extra = map[string]json.RawMessage{"inputs": list}
			}
			if on := f.Bool("sandboxEnabled"); on != nil && *on {
				f.Report(config.SeverityWarning, "sandboxEnabled", "VS Code runs this server in its sandbox; here nothing confines it yet", "Run it in a container, or otherwise confined, if it must be.")
			}
		}, path...)(d)
	}
}

// maxInputs bounds the bytes of inputs copied to the servers of one file.
const maxInputs = 1 << 20

// vscodeInput is a value that VS Code asks the user for, or obtains itself.
type vscodeInput struct {
	text    json.RawMessage // the definition
	command string          // of VS Code's own, where that gives the value
}

// vscodeInputs reads the inputs, by id.
func (d *doc) vscodeInputs(parent config.Node, pointer string) map[string]vscodeInput {
	items, _ := d.listed(parent, pointer, "inputs")
	inputs := map[string]vscodeInput{}
	for _, it := range items {
		id, ok := it.Get("id")
		if !ok || id.Kind != config.String {
			continue
		}
		def := vscodeInput{text: it.JSON()}
		if kind, _ := it.Get("type"); kind.Text == "command" {
			command, _ := it.Get("command")
			def.command = command.Text
		}
		inputs[id.Text] = def
	}
	return inputs
}

var inputReference = regexp.MustCompile(`\$\{input:([^}]*)\}`)

// inputsOf lists the inputs that any text of a server asks for, each once.
func inputsOf(n config.Node) []string {
	var ids []string
	seen := map[string]bool{}
	var walk func(config.Node)
	walk = func(n config.Node) {
		for _, m := range inputReference.FindAllStringSubmatch(n.Text, -1) {
			if !seen[m[1]] {
				seen[m[1]] = true
				ids = append(ids, m[1])
			}
		}
		for _, it := range n.Items {
			walk(it)
		}
		for _, m := range n.Members {
			walk(m.Value)
		}
	}
	walk(n)
	return ids
}

// devcontainer reads servers that VS Code starts inside a container.
func devcontainer(d *doc) {
	vscode("customizations", "vscode", "mcp", "servers")(d)
	for i := range d.entries {
		e := &d.entries[i]
		e.Problems = append(e.Problems, config.Problem{
			Severity: config.SeverityNote, File: d.path, Line: e.Origin.Line, Pointer: e.Origin.Pointer,
			Message: "VS Code starts this server inside the container",
		})
	}
}
