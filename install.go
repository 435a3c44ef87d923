package patchbay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/discover"
)

// Installable is a product whose own configuration can be told of Patchbay.
type Installable struct {
	ID      string         `json:"id"`
	Product string         `json:"product"`
	Scopes  []config.Scope `json:"scopes"`
}

// InstallableProducts returns them, in order of their ids.
func InstallableProducts() []Installable {
	scopes := discover.Installable(runtime.GOOS)
	var out []Installable
	for _, p := range Providers() {
		if s := scopes[p.ID]; len(s) > 0 {
			out = append(out, Installable{p.ID, p.Product, s})
		}
	}
	slices.SortFunc(out, func(a, b Installable) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// InstallRequest asks for an entry for Patchbay in the configuration of another
// product.
type InstallRequest struct {
	Product string       `json:"product"`         // its id
	Scope   config.Scope `json:"scope,omitempty"` // user or project; empty means user

	Command []string `json:"command,omitempty"` // starts Patchbay on standard input and output

	// HTTP writes the address of a gateway that runs instead, and its token.
	HTTP bool   `json:"http,omitempty"`
	URL  string `json:"url,omitempty"` // that address; empty means where the settings say

	DryRun bool `json:"dryRun,omitempty"`
}

// Installation is what was written into, or removed from, a product's file.
type Installation struct {
	Action  string       `json:"action"` // installed, updated, removed, unchanged
	ID      string       `json:"id"`     // of the product
	Product string       `json:"product"`
	Scope   config.Scope `json:"scope"`
	File    string       `json:"file"`
	Backup  string       `json:"backup,omitempty"`  // where the file is kept as it was
	Diff    string       `json:"diff,omitempty"`    // of a dry run, with values that are not ours masked
	Deleted bool         `json:"deleted,omitempty"` // the file held nothing else and is gone
	DryRun  bool         `json:"dryRun,omitempty"`

	// Closed says that other users could read the file and now cannot, because it
	// holds the token.
	Closed bool `json:"closed,omitempty"`

	// Twice are the servers that the product then has twice: in its own
	// configuration, here, and through Patchbay.
	Twice []string `json:"twice,omitempty"`
}

// Install writes an entry for Patchbay into a product's file. Nothing else in
// the file changes, and its content before is kept. A file that gets the token
// can be read by its owner alone from then on.
func (h *Host) Install(ctx context.Context, r InstallRequest) (Installation, error) {
	target, err := h.target(r.Product, &r.Scope)
	if err != nil {
		return Installation{}, err
	}
	if len(r.Command) == 0 && !r.HTTP {
		return Installation{}, errorf(KindConfigInvalid, "Neither a command nor an address was given to install.")
	}
	var self discover.Self
	if r.HTTP {
		if !target.HTTP() {
			return Installation{}, errorf(KindConfigInvalid, "%s cannot be told an address and a token.", target.Provider.Product).hint("Install without --http.")
		}
		if r.Scope == config.ScopeProject {
			return Installation{}, errorf(KindDenied, "The address comes with your token, which does not belong into a file of the project.").hint("Use user scope, or leave out --http.")
		}
		self.URL = cmp.Or(r.URL, h.Settings().Gateway.Endpoint())
		if self.Token, err = h.GatewayToken(ctx); err != nil {
			return Installation{}, err
		}
	} else {
		self.Command, self.Args = r.Command[0], r.Command[1:]
	}
	done, err := h.edit(ctx, target, r, func(old []byte) ([]byte, error) {
		if old == nil && target.MustExist() {
			return nil, errorf(KindNotFound, "%s has no configuration yet at %s.", target.Provider.Product, target.File).hint("Start it once; it makes the file.")
		}
		return target.Set(old, self)
	})
	done.Twice = h.offeredToo(target.Provider.ID)
	return done, err
}

// offeredToo are the servers that a product has itself, switched on, and that
// Patchbay offers under the same name, whoever declares them.
func (h *Host) offeredToo(provider string) (names []string) {
	r := h.reading.Load()
	for _, st := range r.snap.Servers {
		at, ok := r.inForce[st.Name]
		if ok && st.Origin.Provider == provider && st.Skip == "" && st.entry.Enabled() && r.servers[at].usable() {
			names = append(names, st.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Uninstall removes the entry for Patchbay from a product's file.
func (h *Host) Uninstall(ctx context.Context, r InstallRequest) (Installation, error) {
	target, err := h.target(r.Product, &r.Scope)
	if err != nil {
		return Installation{}, err
	}
	return h.edit(ctx, target, r, func(old []byte) ([]byte, error) {
		if old == nil {
			return nil, nil
		}
		return target.Remove(old)
	})
}

// target finds the file a request is about, and the scope if it says none.
func (h *Host) target(product string, scope *config.Scope) (discover.Target, error) {
	if *scope == "" {
		*scope = config.ScopeUser
	}
	product = productID(product)
	target, err := discover.FindTarget(h.scanEnv(), product, *scope)
	if err == nil {
		return target, nil
	}
	var ids []string
	for _, p := range InstallableProducts() {
		ids = append(ids, p.ID)
		if p.ID == product && !slices.Contains(p.Scopes, *scope) {
			return target, errorf(KindConfigInvalid, "%s has no file for %s scope.", p.Product, *scope).hint("It has one for: %s", joinScopes(p.Scopes))
		}
	}
	for _, p := range Providers() {
		if p.ID == product && p.Note != "" {
			return target, errorf(KindConfigInvalid, "%s cannot be configured from here: %s.", p.Product, p.Note)
		}
	}
	e := errorf(KindNotFound, "No product named %q that Patchbay can be installed in.", product)
	if n := nearest(product, ids); n != "" {
		return target, e.hint("Did you mean %q?", n)
	}
	return target, e.hint("Known: %s", joinNames(ids))
}

// productID returns the id of a product that may be given by its name: claude-code,
// gemini-cli.
func productID(product string) string {
	for _, p := range Providers() {
		if strings.ReplaceAll(strings.ToLower(p.Product), " ", "-") == product {
			return p.ID
		}
	}
	return product
}

func joinScopes(scopes []config.Scope) string {
	var names []string
	for _, s := range scopes {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// edit carries out a change of a product's file, or shows it.
func (h *Host) edit(ctx context.Context, target discover.Target, r InstallRequest, change func(old []byte) ([]byte, error)) (Installation, error) {
	ctx, end := h.change(ctx)
	defer end()
	done := Installation{Action: "unchanged", ID: target.Provider.ID, Product: target.Provider.Product, Scope: r.Scope, File: target.File, DryRun: r.DryRun}
	var before, after []byte
	act := func(old []byte) ([]byte, error) {
		data, err := change(old)
		if err != nil {
			return nil, h.explain(target, err)
		}
		before, after = old, data
		return data, nil
	}
	opts := atomicfile.Options{Mode: 0o600, Private: r.HTTP, FollowSymlink: true, LockDir: h.places().lockDir()}
	if r.Scope == config.ScopeProject {
		opts = atomicfile.Options{Mode: 0o644, Within: h.places().project, LockDir: h.places().lockDir()}
	}
	if info, err := os.Stat(target.File); err == nil && r.HTTP {
		done.Closed = !private(info)
	}
	if r.DryRun {
		old, err := atomicfile.Read(target.File, config.MaxPartFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return done, err
		}
		if _, err := act(old); err != nil {
			return done, err
		}
	} else if _, err := atomicfile.Update(ctx, target.File, opts, func(old []byte) ([]byte, error) {
		data, err := act(old)
		if err == nil && old != nil && data != nil && !bytes.Equal(old, data) {
			done.Backup, err = h.backUp(target, old)
		}
		return data, err
	}); err != nil {
		return done, err
	}
	if bytes.Equal(before, after) {
		if done.Closed {
			done.Action = "updated"
		}
		return done, nil
	}
	done.Action = action(target, before, after)
	if r.DryRun {
		done.Diff = maskedDiff(target, before, after)
		return done, nil
	}
	if done.Action == "removed" && isBlank(after) { // nothing but what was installed
		if err := os.Remove(target.File); err != nil {
			return done, err
		}
		done.Deleted = true
		h.removeEmpty(filepath.Dir(target.File))
	}
	return done, h.reload(ctx)
}

// removeEmpty removes a directory in which nothing is left, and those above it, up
// to the home directory or the project.
func (h *Host) removeEmpty(dir string) {
	for dir != h.opts.Home && dir != h.places().project && filepath.Dir(dir) != dir {
		if os.Remove(dir) != nil { // something is in it
			return
		}
		dir = filepath.Dir(dir)
	}
}

// explain turns what a target says of a file into an error for people.
func (h *Host) explain(target discover.Target, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := errorf(KindConfigInvalid, "%s %v.", target.File, err)
	switch {
	case errors.Is(err, discover.ErrForeign):
		return e.hint("Rename or remove that entry first. Nothing was changed.")
	case errors.Is(err, discover.ErrUnmarked):
		return e.hint("Edit it by hand. Nothing was changed.")
	case errors.Is(err, discover.ErrCannotAdd):
		return e.hint("Write the entry by hand. Nothing was changed.")
	}
	return errorf(KindConfigInvalid, "%s:%v", target.File, err).hint("Nothing was changed. Correct the file first.")
}

func action(target discover.Target, before, after []byte) string {
	switch had, has := target.Texts(before) != nil, target.Texts(after) != nil; {
	case had && has:
		return "updated"
	case had:
		return "removed"
	}
	return "installed"
}

// isBlank reports whether a file says nothing.
func isBlank(data []byte) bool {
	data = bytes.TrimSpace(data)
	if inner, ok := bytes.CutPrefix(data, []byte("{")); ok {
		data, ok = bytes.CutSuffix(inner, []byte("}"))
		return ok && len(bytes.TrimSpace(data)) == 0
	}
	return len(data) == 0
}

// maxBackups are kept of the files of each product.
const maxBackups = 10

// backUp keeps a product's file as it was, where only the user can read it.
func (h *Host) backUp(target discover.Target, data []byte) (string, error) {
	dir := filepath.Join(h.places().state, "backups", target.Provider.ID)
	name := h.opts.Now().UTC().Format("20060102T150405.000Z") + "-" + strings.TrimPrefix(filepath.Base(target.File), ".")
	path := filepath.Join(dir, name)
	if err := atomicfile.Write(path, data, h.ownFile()); err != nil {
		return "", fmt.Errorf("backup of %s: %w", target.File, err)
	}
	if kept, err := os.ReadDir(dir); err == nil { // sorted by name, which is by time
		for _, old := range kept[:max(0, len(kept)-maxBackups)] {
			_ = os.Remove(filepath.Join(dir, old.Name())) // the next backup tries again
		}
	}
	return path, nil
}

// maskedDiff shows how a file would change. The lines that change may hold
// values of others beside ours, so every text is masked that is not one of the
// entry's own, and the token is masked too.
func maskedDiff(target discover.Target, before, after []byte) string {
	// Or the last line, whatever it says, would count as changed.
	ended := func(text []byte) string {
		if len(text) == 0 || bytes.HasSuffix(text, []byte("\n")) {
			return string(text)
		}
		return string(text) + "\n"
	}
	old, now := ended(before), ended(after)
	text, err := udiff.ToUnified(target.File, target.File, old, udiff.Lines(old, now), 0)
	if err != nil {
		return ""
	}
	own := append(target.Texts(before), target.Texts(after)...)
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if i >= 2 && !strings.HasPrefix(line, "@@") && line != "" {
			lines[i] = line[:1] + maskTexts(line[1:], own)
		}
	}
	return gatewayToken.ReplaceAllString(strings.Join(lines, ""), config.GatewayTokenPrefix+"…")
}

var gatewayToken = regexp.MustCompile(config.GatewayTokenPrefix + `[A-Za-z0-9_-]+`)

// maskTexts replaces the quoted texts of a line that are neither names of
// members nor among own.
func maskTexts(line string, own []string) string {
	var out strings.Builder
	for {
		start := strings.IndexByte(line, '"')
		if start < 0 {
			return out.String() + line
		}
		end := start + 1
		for end < len(line) && line[end] != '"' {
			if line[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(line) {
			return out.String() + line[:start] + "\"…\n"
		}
		quoted, rest := line[start:end+1], line[end+1:]
		var text string
		after := strings.TrimLeft(rest, " \t")
		isName := strings.HasPrefix(after, ":") || strings.HasPrefix(after, "=")
		if !isName && (json.Unmarshal([]byte(quoted), &text) != nil || !slices.Contains(own, text)) {
			quoted = `"…"`
		}
		out.WriteString(line[:start] + quoted)
		line = rest
	}
}
