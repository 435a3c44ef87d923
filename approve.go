package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

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

// subject is what a person decides about: a declaration of a server, or the
// hooks of the project.
type subject struct {
	name     string
	what     string // for a sentence
	origin   config.Origin
	hash     string
	approved bool
	describe func() string
	invalid  *Error // why it cannot be approved; nil if it can
}

// Approval returns what approving a server, or ProjectHooks, would mean. A server
// that comes from the user's own files needs no approval: that is an error here.
func (h *Host) Approval(name string) (ApprovalRequest, error) {
	h.changing.Lock()
	defer h.changing.Unlock()
	s, err := h.subject(name)
	if err != nil {
		return ApprovalRequest{}, err
	}
	return ApprovalRequest{Name: s.name, Hash: s.hash, Origin: s.origin, Approved: s.approved, Text: s.describe()}, nil
}

// subject finds what a name means to somebody who decides about it.
func (h *Host) subject(name string) (subject, error) {
	if name == ProjectHooks {
		return h.hooksSubject()
	}
	st, err := h.awaiting(name)
	if err != nil {
		return subject{}, err
	}
	return st.subject(), nil
}

// subject is a declaration as something to decide about.
func (st ServerStatus) subject() subject {
	s := subject{
		name: st.Name, what: fmt.Sprintf("Server %q", st.Name), origin: st.Origin, hash: st.hash, approved: st.approved,
		describe: func() string { return policy.Describe(st.launch) },
	}
	if st.State == config.Failed {
		s.invalid = &Error{Kind: KindConfigInvalid, Message: fmt.Sprintf("Server %q is invalid and cannot be approved: %s", st.Name, st.invalidity()), Problems: st.Problems}
	}
	return s
}

func (h *Host) hooksSubject() (subject, error) {
	st := h.reading.Load().snap.Hooks
	if st == nil {
		return subject{}, errorf(KindNotFound, "The project has no hooks: %s declares none.", h.places().projectSettings())
	}
	s := subject{
		name: ProjectHooks, what: "The set of hooks", origin: st.Origin, hash: st.hash, approved: st.Run(),
		describe: func() string { return policy.DescribeHooks(st.launch) },
	}
	if st.State == config.Failed {
		s.invalid = errorf(KindConfigInvalid, "The hooks of the project are invalid and cannot be approved: %s", st.Reason)
	}
	return s, nil
}

// awaiting finds the strongest declaration of a name that is subject to
// approval, one not yet decided on before one that is.
func (h *Host) awaiting(name string) (ServerStatus, error) {
	all := h.reading.Load().snap.Servers
	var found *ServerStatus
	for i, st := range all {
		if !st.called(name) || st.Origin.Project == "" || st.Skip != "" {
			continue
		}
		if st.State == config.NeedsApproval {
			return st, nil
		}
		if found == nil {
			found = &all[i]
		}
	}
	if found != nil {
		return *found, nil
	}
	st, err := h.reading.Load().find(name)
	if err != nil {
		return ServerStatus{}, err
	}
	return ServerStatus{}, errorf(KindConfigInvalid, "Server %q needs no approval: %s is not part of a project.", st.Name, st.Origin.File)
}

// Approve records that a server, or ProjectHooks, may be used as it is described
// by hash. If its declaration changed since the hash was shown, nothing is
// approved.
func (h *Host) Approve(ctx context.Context, name, hash string) (Change, error) {
	return h.decide(ctx, name, hash, policy.Approve)
}

// Reject records that a server, or ProjectHooks, must not be used as it is
// described by hash.
func (h *Host) Reject(ctx context.Context, name, hash string) (Change, error) {
	return h.decide(ctx, name, hash, policy.Reject)
}

func (h *Host) decide(ctx context.Context, name, hash string, decision policy.Decision) (Change, error) {
	ctx, end := h.change(ctx)
	defer end()
	if err := h.reload(ctx); err != nil { // what was shown may have changed since
		return Change{}, err
	}
	s, err := h.subject(name)
	if err != nil {
		return Change{}, err
	}
	if s.invalid != nil && decision == policy.Approve {
		return Change{}, s.invalid
	}
	if s.hash != hash {
		again := s.name
		if name == ProjectHooks {
			again = "--hooks"
		}
		return Change{}, errorf(KindDenied, "%s changed since it was shown; nothing was %s.", s.what, done(decision)).hint("Run `patchbay %s %s` again.", decision, again)
	}
	change := Change{Action: done(decision), Name: s.name, Scope: s.origin.Scope, File: h.places().approvalsFile()}
	return change, h.record(ctx, decision, s)
}

// done names what was done.
func done(d policy.Decision) string {
	if d == policy.Approve {
		return "approved"
	}
	return "rejected"
}

// record keeps a decision and applies it.
func (h *Host) record(ctx context.Context, decision policy.Decision, about ...subject) error {
	err := h.updateApprovals(ctx, func(a *policy.Approvals) (changed bool) {
		for _, s := range about {
			a.Set(s.hash, policy.Approval{Decision: decision, Name: s.name, Project: h.places().realProject, File: s.origin.File, When: h.opts.Now().UTC()})
		}
		return len(about) > 0
	})
	if err != nil {
		return err
	}
	return h.reload(ctx)
}

// ForgottenChoices is what ResetProjectChoices did.
type ForgottenChoices struct {
	Forgotten int    `json:"forgotten"`      // how many approvals and rejections there were
	File      string `json:"file,omitempty"` // the file that was changed, if one was
}

// ResetProjectChoices forgets every approval and rejection of this project.
func (h *Host) ResetProjectChoices(ctx context.Context) (ForgottenChoices, error) {
	ctx, end := h.change(ctx)
	defer end()
	var r ForgottenChoices
	err := h.updateApprovals(ctx, func(a *policy.Approvals) (changed bool) {
		r.Forgotten = a.Forget(h.places().realProject)
		return r.Forgotten > 0
	})
	if err != nil {
		return ForgottenChoices{}, err
	}
	if r.Forgotten > 0 {
		r.File = h.places().approvalsFile()
	}
	return r, h.reload(ctx)
}

// readApprovals reads what was decided. If that cannot be read nothing counts
// as approved, and the problem says so.
func (h *Host) readApprovals() (policy.Approvals, []config.Problem) {
	data, err := atomicfile.Read(h.places().approvalsFile(), maxApprovals)
	if errors.Is(err, fs.ErrNotExist) {
		return policy.Approvals{}, nil
	}
	var approvals policy.Approvals
	if err == nil {
		err = ownAlone(h.places().approvalsFile())
	}
	if err == nil {
		approvals, err = h.parseApprovals(data)
	}
	if err != nil {
		return policy.Approvals{}, []config.Problem{{
			Severity: config.SeverityError, File: h.places().approvalsFile(),
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
		return a, errorf(KindConfigInvalid, "%s is damaged: %v", h.places().approvalsFile(), err).hint(damagedHint)
	}
	return a, nil
}

func (h *Host) updateApprovals(ctx context.Context, change func(*policy.Approvals) (changed bool)) error {
	_, err := atomicfile.Update(ctx, h.places().approvalsFile(), h.ownFile(), func(old []byte) ([]byte, error) {
		a, err := h.parseApprovals(old)
		if err != nil {
			return nil, err
		}
		if !change(&a) {
			return nil, nil
		}
		data, err := json.MarshalIndent(a, "", "  ")
		return append(data, '\n'), err
	})
	return err
}

// ownFile are the rules for files in the user's own state: private, and no
// symbolic link may lead elsewhere.
func (h *Host) ownFile() atomicfile.Options {
	return atomicfile.Options{Mode: 0o600, Within: h.places().state, LockDir: h.places().lockDir()}
}
