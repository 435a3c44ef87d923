package discover

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/patchbay-mcp/patchbay/config"
)

// vscode reads servers of VS Code found under the named members, with the
// inputs and the sandbox beside them.
func vscode(path ...string) reader {
	return func(d *doc) {
		parent, pointer, ok := d.find(path[:len(path)-1]...)
		if !ok {
			return
		}
		inputs := d.vscodeInputs(parent, pointer)
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
				asked = append(asked, def.JSON())
				if kind, _ := def.Get("type"); kind.Text == "command" {
					command, _ := def.Get("command")
					e.Executes = append(e.Executes, "the VS Code command "+command.Text)
				}
			}
			if len(asked) > 0 {
				list, _ := json.Marshal(asked) // valid JSON already
				e.Server.Extra = map[string]json.RawMessage{"inputs": list}
			}
			if on := f.Bool("sandboxEnabled"); on != nil && *on {
				f.Report(config.SeverityWarning, "sandboxEnabled", "VS Code runs this server in its sandbox; that setting is not taken over", `say how to confine it under "sandbox" in Patchbay's own file`)
			}
		}, path...)(d)
	}
}

// vscodeInputs reads the values VS Code asks the user for, by id.
func (d *doc) vscodeInputs(parent config.Node, pointer string) map[string]config.Node {
	list, ok := parent.Get("inputs")
	if !ok || list.Kind != config.Array {
		if ok && list.Kind != config.Null {
			d.report(config.SeverityWarning, list, config.PointerTo(pointer, "inputs"), `invalid "inputs" value, ignoring: expected an array, found `+list.Kind.String(), "")
		}
		return nil
	}
	inputs := map[string]config.Node{}
	for _, it := range list.Items {
		if id, ok := it.Get("id"); ok && id.Kind == config.String {
			inputs[id.Text] = it
		}
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
