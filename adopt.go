package patchbay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/discover"
)

// AdoptRequest asks for Patchbay to take the place of a product's own servers, or
// to give it back.
type AdoptRequest struct {
	Product string   `json:"product"`           // its id
	Command []string `json:"command,omitempty"` // starts Patchbay on standard input and output
	DryRun  bool     `json:"dryRun,omitempty"`
}

// Adoption is what became of the servers of a product.
type Adoption struct {
	ID      string          `json:"id"` // of the product
	Product string          `json:"product"`
	Servers []AdoptedServer `json:"servers"`
	Files   []AdoptedFile   `json:"files,omitempty"` // that were changed
	DryRun  bool            `json:"dryRun,omitempty"`
}

// AdoptedServer is what became of one server.
type AdoptedServer struct {
	Name     string       `json:"name"`
	Action   string       `json:"action"`             // adopted, updated, released, unchanged, skipped, left
	Reason   string       `json:"reason,omitempty"`   // for which it was skipped or left
	Endpoint string       `json:"endpoint,omitempty"` // at which its product is served
	Target   string       `json:"target,omitempty"`   // its own command line or URL, masked
	Scope    config.Scope `json:"scope"`
	File     string       `json:"file"`
	Line     int          `json:"line,omitempty"`
}

// AdoptedFile is a product's file that was changed.
type AdoptedFile struct {
	File   string `json:"file"`
	Backup string `json:"backup"` // where it is kept as it was
}

// AdoptableProducts returns the ids of the products whose servers can be adopted.
func AdoptableProducts() []string { return discover.Adoptable() }

// Adopt takes the place of the servers that a product has in the user's own files:
// each entry then starts Patchbay, which serves that server as if nothing were in
// between. The originals are kept, and read in their place. What cannot be adopted
// is left as it is, with the reason. Doing it again changes nothing.
func (h *Host) Adopt(ctx context.Context, r AdoptRequest) (Adoption, error) {
	ctx, end := h.change(ctx)
	defer end()
	done, err := h.adoption(r)
	if err != nil {
		return done, err
	}
	if len(r.Command) == 0 {
		return done, errorf(KindConfigInvalid, "No command was given that starts Patchbay.")
	}
	if err := h.reload(ctx); err != nil { // the entries as they are now
		return done, err
	}
	records, err := h.adopted()
	if err != nil {
		return done, err
	}
	files := map[string][]ServerStatus{}
	var order []string
	for _, st := range h.reading.Load().snap.Servers {
		if st.Origin.Provider != done.ID {
			continue
		}
		if why := h.notAdoptable(st); why != "" && st.Adopted == "" {
			done.Servers = append(done.Servers, AdoptedServer{Name: st.Name, Action: "skipped", Reason: why, Target: st.Target, Scope: st.Origin.Scope, File: st.Origin.File, Line: st.Origin.Line})
			continue
		}
		if files[st.Origin.File] == nil {
			order = append(order, st.Origin.File)
		}
		files[st.Origin.File] = append(files[st.Origin.File], st)
	}
	if len(order) == 0 && len(done.Servers) == 0 {
		return done, errorf(KindNotFound, "%s has no servers configured here.", done.Product)
	}
	self := discover.Self{Command: r.Command[0], Args: r.Command[1:], Env: discover.Movers(done.ID, h.opts.getenv)}
	for _, file := range order {
		a := &adopting{servers: files[file], records: records, self: self}
		err := h.editAdopted(ctx, &done, file, a.change, func() error {
			return h.updateAdopted(ctx, func(all []discover.Adopted) []discover.Adopted { return withRecords(all, a.fresh...) })
		})
		if err != nil {
			for _, st := range a.servers {
				done.Servers = append(done.Servers, AdoptedServer{Name: st.Name, Action: "skipped", Reason: err.Error(), Target: st.Target, Scope: st.Origin.Scope, File: file, Line: st.Origin.Line})
			}
			continue
		}
		done.Servers, records = append(done.Servers, a.done...), a.records
	}
	slices.SortStableFunc(done.Servers, func(a, b AdoptedServer) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	if r.DryRun {
		return done, nil
	}
	return done, h.reload(ctx)
}

// adoption begins what is to be told of a request, if its product can be adopted
// at all.
func (h *Host) adoption(r AdoptRequest) (Adoption, error) {
	id := productID(r.Product)
	ids := AdoptableProducts()
	for _, p := range Providers() {
		switch {
		case p.ID != id:
		case slices.Contains(ids, id):
			return Adoption{ID: id, Product: p.Product, Servers: []AdoptedServer{}, DryRun: r.DryRun}, nil
		case p.ID == nativeProvider:
			return Adoption{}, errorf(KindConfigInvalid, "These are Patchbay's own servers.")
		default:
			return Adoption{}, errorf(KindConfigInvalid, "The servers of %s cannot be adopted: Patchbay does not write its files.", p.Product)
		}
	}
	e := errorf(KindNotFound, "No product named %q whose servers can be adopted.", r.Product)
	if n := nearest(r.Product, ids); n != "" {
		return Adoption{}, e.hint("Did you mean %q?", n)
	}
	return Adoption{}, e.hint("Known: %s", joinNames(ids))
}

// notAdoptable says why Patchbay cannot take the place of a server.
func (h *Host) notAdoptable(st ServerStatus) string {
	product := st.Origin.Product
	switch {
	case st.Skip != "":
		return st.Skip
	case st.Origin.Scope == config.ScopeManaged || st.entry.Forbidden:
		return "it is managed by the administrator"
	case st.Origin.Project != "" || st.Origin.Scope == config.ScopeProject:
		return "it is in a file of the project"
	case !st.entry.Valid():
		return st.Reason
	case !st.entry.Enabled() || st.State == config.Disabled:
		return "it is disabled"
	case st.Server.URL == "":
		return ""
	case st.Server.OAuth != nil && !st.Server.OAuth.Disabled:
		return "it needs a login, which " + product + " has"
	}
	if u, err := url.Parse(st.Server.URL); err == nil && config.IsLoopback(u.Hostname()) || len(st.Server.EnvHeaders) > 0 || hasSecret(st.Server, u) || st.Server.BearerTokenEnvVar != "" {
		return ""
	}
	if sv, ok := h.manager.Server(st.Name, conn.Profile{}); ok && st.InForce {
		switch {
		case sv.Status().State == config.NeedsAuth:
			return "it needs a login, which " + product + " has"
		case sv.Catalog() != nil: // it has let us in
			return ""
		}
	}
	return fmt.Sprintf("it may need a login, which %s has; if `patchbay test %s` connects, it can be adopted", product, st.Name)
}

// adopting is the change of one file.
type adopting struct {
	servers []ServerStatus
	self    discover.Self
	records []discover.Adopted

	done  []AdoptedServer
	fresh []discover.Adopted // of records
}

// change takes the place of the servers in a file.
func (a *adopting) change(old []byte) ([]byte, error) {
	a.done, a.fresh = nil, nil // the file may have to be read again
	out := old
	for _, st := range a.servers {
		is := AdoptedServer{Name: st.Name, Action: "skipped", Target: st.Target, Scope: st.Origin.Scope, File: st.Origin.File, Line: st.Origin.Line}
		i := slices.IndexFunc(a.records, func(r discover.Adopted) bool { return r.File == st.Origin.File && r.Pointer == st.Origin.Pointer })
		var before *discover.Adopted
		if i >= 0 && st.Adopted == a.records[i].Name {
			before = &a.records[i]
		}
		name := a.endpoint(st, i)
		data, record, err := discover.Adopt(out, st.entry, name, a.self, before)
		switch {
		case err != nil:
			is.Reason = err.Error()
			a.done = append(a.done, is)
			continue
		case before == nil:
			is.Action = "adopted"
		case bytes.Equal(data, out):
			is.Action = "unchanged"
		default:
			is.Action = "updated"
		}
		a.records, a.fresh = withRecords(a.records, record), append(a.fresh, record)
		is.Endpoint, out = name, data
		a.done = append(a.done, is)
	}
	return out, nil
}

// withRecords returns records with others among them, in place of those of the same
// entries.
func withRecords(all []discover.Adopted, others ...discover.Adopted) []discover.Adopted {
	all = slices.Clone(all)
	for _, r := range others {
		i := slices.IndexFunc(all, func(a discover.Adopted) bool { return a.File == r.File && a.Pointer == r.Pointer })
		if i < 0 {
			all = append(all, r)
		} else {
			all[i] = r
		}
	}
	return all
}

// endpoint is what a server is called when it is adopted: no other is, even if it
// has the same name in another file of the product.
func (a *adopting) endpoint(st ServerStatus, record int) string {
	if record >= 0 {
		return a.records[record].Name
	}
	name := st.Origin.Provider + "/" + st.Name
	for n := 2; slices.ContainsFunc(a.records, func(r discover.Adopted) bool { return r.Name == name }); n++ {
		name = fmt.Sprintf("%s/%s-%d", st.Origin.Provider, st.Name, n)
	}
	return name
}

// Release puts back the servers of a product that were adopted, byte for byte.
// What was edited since is left as it is.
func (h *Host) Release(ctx context.Context, r AdoptRequest) (Adoption, error) {
	ctx, end := h.change(ctx)
	defer end()
	done, err := h.adoption(r)
	if err != nil {
		return done, err
	}
	records, err := h.adopted()
	if err != nil {
		return done, err
	}
	files := map[string][]discover.Adopted{}
	for _, a := range records {
		if a.Provider == done.ID {
			files[a.File] = append(files[a.File], a)
		}
	}
	var gone []discover.Adopted // which are not needed any more
	for _, file := range slices.Sorted(maps.Keys(files)) {
		var servers []AdoptedServer
		var released []discover.Adopted
		change := func(old []byte) ([]byte, error) {
			servers, released = nil, nil // the file may have to be read again
			out := old
			for _, a := range files[file] {
				is := AdoptedServer{Name: a.Server(), Action: "released", Endpoint: a.Name, Scope: a.Scope, File: file}
				data, err := a.Release(out)
				switch {
				case err == nil:
					out = data
				case errors.Is(err, discover.ErrReplaced) && a.Restored(out):
					is.Action = "unchanged"
				default:
					is.Action, is.Reason = "left", err.Error()
				}
				if !errors.Is(err, discover.ErrEdited) && (err == nil || errors.Is(err, discover.ErrReplaced)) {
					released = append(released, a)
				}
				servers = append(servers, is)
			}
			return out, nil
		}
		if err := h.editAdopted(ctx, &done, file, change, func() error { return nil }); err != nil {
			for _, a := range files[file] {
				done.Servers = append(done.Servers, AdoptedServer{Name: a.Server(), Action: "left", Reason: err.Error(), Endpoint: a.Name, Scope: a.Scope, File: file})
			}
			continue
		}
		done.Servers, gone = append(done.Servers, servers...), append(gone, released...)
	}
	if r.DryRun {
		return done, nil
	}
	err = h.updateAdopted(ctx, func(all []discover.Adopted) []discover.Adopted {
		return slices.DeleteFunc(all, func(a discover.Adopted) bool { return slices.Contains(gone, a) })
	})
	return done, errors.Join(err, h.reload(ctx))
}

// editAdopted changes a product's file, or only finds out how it would be changed.
// What first does comes before the file is written.
func (h *Host) editAdopted(ctx context.Context, done *Adoption, file string, change func([]byte) ([]byte, error), first func() error) error {
	if done.DryRun {
		old, err := atomicfile.Read(file, config.MaxPartFile)
		if err == nil {
			_, err = change(old)
		}
		return err
	}
	var backup string
	changed, err := atomicfile.Update(ctx, file, atomicfile.Options{Mode: 0o600, FollowSymlink: true, LockDir: h.places().lockDir()}, func(old []byte) ([]byte, error) {
		if old == nil {
			return nil, fs.ErrNotExist
		}
		data, err := change(old)
		if err == nil {
			err = first()
		}
		if err == nil && !bytes.Equal(old, data) {
			backup, err = h.backUp(discover.Target{Provider: Provider{ID: done.ID}, File: file}, old)
		}
		return data, err
	})
	if changed {
		done.Files = append(done.Files, AdoptedFile{file, backup})
	}
	return err
}

// maxAdopted is how long the file of adopted servers may be.
const maxAdopted = 16 << 20

func (p places) adoptedFile() string { return filepath.Join(p.state, "adopted.json") }

// adoptedRecords is the file of adopted servers.
type adoptedRecords struct {
	Servers []discover.Adopted `json:"servers"`
}

// adopted returns the servers that are adopted.
func (h *Host) adopted() ([]discover.Adopted, error) {
	path := h.places().adoptedFile()
	data, err := atomicfile.Read(path, maxAdopted)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = ownAlone(path)
	}
	if err != nil {
		return nil, fmt.Errorf("the originals of adopted servers cannot be read: %w", err)
	}
	return parseAdopted(path, data)
}

func parseAdopted(path string, data []byte) ([]discover.Adopted, error) {
	var all adoptedRecords
	if err := json.Unmarshal(data, &all); len(data) > 0 && err != nil {
		return nil, errorf(KindConfigInvalid, "%s is damaged: %v", path, err).hint("The products' files as they were before are under %s.", filepath.Join(filepath.Dir(path), "backups"))
	}
	return all.Servers, nil
}

// readAdopted is adopted for a reading of the configuration, which goes on without.
func (h *Host) readAdopted() ([]discover.Adopted, []config.Problem) {
	all, err := h.adopted()
	if err != nil {
		return nil, []config.Problem{{Severity: config.SeverityError, File: h.places().adoptedFile(), Message: err.Error()}}
	}
	return all, nil
}

func (h *Host) updateAdopted(ctx context.Context, change func([]discover.Adopted) []discover.Adopted) error {
	path := h.places().adoptedFile()
	_, err := atomicfile.Update(ctx, path, h.ownFile(), func(old []byte) ([]byte, error) {
		all, err := parseAdopted(path, old)
		if err != nil {
			return nil, err
		}
		was := slices.Clone(all)
		if all = change(all); slices.Equal(all, was) {
			return old, nil
		}
		data, err := json.MarshalIndent(adoptedRecords{all}, "", "  ")
		return append(data, '\n'), err
	})
	return err
}
