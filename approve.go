package patchbay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/policy"
)

// ApprovalRequest is what a person is asked to approve: the exact thing that
// would run or be contacted, and the hash that stands for it.
type ApprovalRequest struct {
	Name   string        `json:"name"`
	Hash   string        `json:"hash"`
	Origin config.Origin `json:"origin"`
	Text   string        `json:"text"` // the whole of it, safe to print

	Approved bool `json:"approved"` // it is approved already
}

// Approval returns what approving a server would mean. A server that comes from
// the user's own files needs no approval: that is an error here.
func (h *Host) Approval(name string) (ApprovalRequest, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	st, err := h.awaiting(name)
	if err != nil {
		return ApprovalRequest{}, err
	}
	return ApprovalRequest{
		Name: st.Name, Hash: st.hash, Origin: st.Origin, Approved: st.approved,
		Text: policy.Describe(h.launch(st.entry)),
	}, nil
}

// awaiting finds the strongest declaration of a name that is subject to
// approval, one not yet decided on before one that is.
func (h *Host) awaiting(name string) (ServerStatus, error) {
	var found *ServerStatus
	for i, st := range h.snap.Servers {
		if !st.called(name) || st.hash == "" || st.Skip != "" {
			continue
		}
		if st.State == config.NeedsApproval {
			return st, nil
		}
		if found == nil {
			found = &h.snap.Servers[i]
		}
	}
	if found != nil {
		return *found, nil
	}
	st, err := h.snap.find(name)
	if err != nil {
		return ServerStatus{}, err
	}
	return ServerStatus{}, errorf(KindConfigInvalid, "Server %q needs no approval: %s is not part of a project.", st.Name, st.Origin.File)
}

// Approve records that a server may be used as it is described by hash. If its
// declaration changed since the hash was shown, nothing is approved.
func (h *Host) Approve(ctx context.Context, name, hash string) error {
	return h.decide(ctx, name, hash, policy.Approve)
}

// Reject records that a server must not be used as it is described by hash.
func (h *Host) Reject(ctx context.Context, name, hash string) error {
	return h.decide(ctx, name, hash, policy.Reject)
}

func (h *Host) decide(ctx context.Context, name, hash string, decision policy.Decision) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.reload(ctx); err != nil { // what was shown may have changed since
		return err
	}
	st, err := h.awaiting(name)
	if err != nil {
		return err
	}
	if st.State == config.Failed {
		return &Error{Kind: KindConfigInvalid, Message: fmt.Sprintf("Server %q is invalid and cannot be approved: %s", st.Name, st.Reason), Problems: st.Problems}
	}
	if st.hash != hash {
		return errorf(KindDenied, "Server %q changed since it was shown; nothing was approved.", st.Name).hint("Run `patchbay approve %s` again.", st.Name)
	}
	err = h.updateApprovals(ctx, func(a *policy.Approvals) {
		a.Set(hash, policy.Approval{Decision: decision, Name: st.Name, Project: h.places.project, File: st.Origin.File, When: h.opts.Now().UTC()})
	})
	if err != nil {
		return err
	}
	return h.reload(ctx)
}

// ResetProjectChoices forgets every approval and rejection of this project, and
// returns how many there were.
func (h *Host) ResetProjectChoices(ctx context.Context) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	forgotten := 0
	err := h.updateApprovals(ctx, func(a *policy.Approvals) { forgotten = a.Forget(h.places.project) })
	if err != nil {
		return 0, err
	}
	return forgotten, h.reload(ctx)
}

// readApprovals reads what was decided. If that cannot be read nothing counts
// as approved, and the problem says so.
func (h *Host) readApprovals() (policy.Approvals, []config.Problem) {
	data, err := atomicfile.Read(h.places.approvalsFile(), maxApprovals)
	if errors.Is(err, fs.ErrNotExist) {
		return policy.Approvals{}, nil
	}
	var approvals policy.Approvals
	if err == nil {
		approvals, err = h.parseApprovals(data)
	}
	if err != nil {
		return policy.Approvals{}, []config.Problem{{
			Severity: config.SeverityError, File: h.places.approvalsFile(),
			Message: "no approval can be read, so none counts: " + err.Error(), Hint: damagedHint,
		}}
	}
	return approvals, nil
}

const (
	maxApprovals = 16 << 20
	damagedHint  = "Move the file away; every project server then asks for approval again."
)

func (h *Host) parseApprovals(data []byte) (policy.Approvals, error) {
	var a policy.Approvals
	if len(data) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, errorf(KindConfigInvalid, "%s is damaged: %v", h.places.approvalsFile(), err).hint(damagedHint)
	}
	return a, nil
}

func (h *Host) updateApprovals(ctx context.Context, change func(*policy.Approvals)) error {
	_, err := atomicfile.Update(ctx, h.places.approvalsFile(), h.ownFile(), func(old []byte) ([]byte, error) {
		a, err := h.parseApprovals(old)
		if err != nil {
			return nil, err
		}
		change(&a)
		data, err := json.MarshalIndent(a, "", "  ")
		return append(data, '\n'), err
	})
	return err
}

// ownFile are the rules for files in the user's own state: private, and no
// symbolic link may lead elsewhere.
func (h *Host) ownFile() atomicfile.Options {
	return atomicfile.Options{Mode: 0o600, Within: h.places.state, LockDir: h.places.lockDir()}
}

// launch gathers what an approval of the entry covers, with the facts that only
// the file system knows: which file the command is, and what is in it if it is
// part of the project.
func (h *Host) launch(e config.Entry) policy.Launch {
	l := policy.LaunchOf(e)
	l.Project = realPath(h.places.project)
	if info, err := os.Stat(h.places.project); err == nil {
		l.ProjectID = fileIdentity(info)
	}
	if e.Server.Command == "" || strings.ContainsAny(e.Server.Command, "${}") {
		return l
	}
	path, err := h.resolveCommand(e)
	if err != nil {
		return l // not there: resolving differently later changes the hash
	}
	l.ResolvedCommand = path
	if inside(path, h.places.project) {
		l.CommandDigest = fileDigest(path)
	}
	return l
}

// resolveCommand finds the program an entry would start, with the PATH of the
// environment the host was opened with.
func (h *Host) resolveCommand(e config.Entry) (string, error) {
	command := e.Server.Command
	if strings.ContainsRune(command, filepath.Separator) || filepath.IsAbs(command) {
		if !filepath.IsAbs(command) {
			command = filepath.Join(h.workDir(e), command)
		}
		return filepath.EvalSymlinks(command)
	}
	for _, dir := range filepath.SplitList(h.opts.getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(dir, command)); err == nil {
			return filepath.EvalSymlinks(path)
		}
	}
	return "", exec.ErrNotFound
}

// workDir is the directory the entry's process would start in.
func (h *Host) workDir(e config.Entry) string {
	switch {
	case e.Server.Cwd == "":
		return h.places.project
	case filepath.IsAbs(e.Server.Cwd):
		return e.Server.Cwd
	default:
		return filepath.Join(h.places.project, e.Server.Cwd)
	}
}

// fileDigest hashes a program of the project, so that an edited one asks again.
func fileDigest(path string) string {
	const most = 256 << 20
	f, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, most)); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}
