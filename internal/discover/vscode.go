package discover

import (
	"fmt"
	"maps"
	"slices"

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
			asked := map[string]bool{}
			for _, u := range config.Uses(e.Server, e.Dialect) {
				if u.Kind == config.UseInput {
					asked[u.Name] = true
				}
			}
			for _, in := range inputs { // in the order in which they are defined
				if !asked[in.ID] {
					continue
				}
				delete(asked, in.ID)
				room -= in.size
				switch {
				case room < 0:
					f.Report(config.SeverityError, "", fmt.Sprintf("the inputs of this file come to more than %d bytes", maxInputs), "")
				case in.wrong != "":
					f.Report(config.SeverityError, "", fmt.Sprintf("the input %q %s", in.ID, in.wrong), in.hint)
				default:
					e.Inputs = append(e.Inputs, in.Input)
				}
				if in.command != "" {
					e.Executes = append(e.Executes, "the VS Code command "+in.command)
				}
			}
			for _, id := range slices.Sorted(maps.Keys(asked)) {
				f.Report(config.SeverityError, "", fmt.Sprintf("no input %q is defined in this file", id), "")
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
	config.Input
	size    int    // of the definition
	command string // of VS Code's own, where that gives the value
	wrong   string // why nobody can be asked for it, and
	hint    string // what to do then
}

// vscodeInputs reads the inputs; of two with one id the first counts.
func (d *doc) vscodeInputs(parent config.Node, pointer string) []vscodeInput {
	items, _ := d.listed(parent, pointer, "inputs")
	var inputs []vscodeInput
	for i, it := range items {
		id, ok := it.Get("id")
		if !ok || id.Kind != config.String || slices.ContainsFunc(inputs, func(in vscodeInput) bool { return in.ID == id.Text }) {
			continue
		}
		f := config.NewFields(it, d.path, config.PointerAt(config.PointerTo(pointer, "inputs"), i))
		inputs = append(inputs, vscodeInputOf(f, id.Text, len(it.JSON())))
		d.problems = append(d.problems, *f.Problems...)
	}
	return inputs
}

func vscodeInputOf(f *config.Fields, id string, size int) vscodeInput {
	in := vscodeInput{Input: config.Input{ID: id, Description: f.String("description")}, size: size}
	if def, ok := f.Node.Get("default"); ok && def.Kind == config.String {
		text := config.NewSecret(def.Text)
		in.Default = &text
	}
	switch kind := f.String("type"); kind {
	case "promptString":
		password := f.Bool("password")
		in.Password = password != nil && *password
	case "pickString":
		options, _ := f.Node.Get("options")
		for _, o := range options.Items {
			label, _ := o.Get("label")
			value, _ := o.Get("value")
			if o.Kind == config.String {
				value = o
			}
			if value.Kind == config.String {
				in.Options = append(in.Options, config.InputOption{Label: label.Text, Value: value.Text})
			}
		}
		if len(in.Options) == 0 {
			in.wrong = "has no options to pick from"
		}
		if in.Default != nil && !in.Takes(in.Default.Reveal()) {
			in.Default = nil
		}
	case "command":
		in.command = f.String("command")
		in.wrong = fmt.Sprintf("is the result of the VS Code command %q, which only VS Code can run", in.command)
		in.hint = `ask for it with "type": "promptString", or put the value in a variable and write ${env:NAME}`
	default:
		in.wrong = fmt.Sprintf("has the type %q; known are promptString, pickString and command", kind)
	}
	return in
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
