package policy

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
)

// Decision is what a person decided about a launch.
type Decision string

const (
	Approve Decision = "approve"
	Reject  Decision = "reject"
)

// Approval is one decision. Only the hash it is kept under binds; the rest says
// to people what the decision was about.
type Approval struct {
	Decision Decision  `json:"decision"`
	Name     string    `json:"name"`
	Project  string    `json:"project"`
	File     string    `json:"file"`
	When     time.Time `json:"when"`
}

// approvalsVersion is the format of the approvals file.
const approvalsVersion = 1

// Approvals is every decision by the hash of its launch: the content of the
// approvals file. The zero value holds none.
type Approvals struct {
	entries map[string]Approval
}

type approvalsFile struct {
	Version int                 `json:"version"`
	Entries map[string]Approval `json:"entries"`
}

// MarshalJSON writes the approvals file.
func (a Approvals) MarshalJSON() ([]byte, error) {
	f := approvalsFile{approvalsVersion, a.entries}
	if f.Entries == nil {
		f.Entries = map[string]Approval{}
	}
	return json.Marshal(f)
}

// UnmarshalJSON reads it. A file of another version is an error: taking it for
// this one could approve what nobody approved, or lose what somebody rejected.
func (a *Approvals) UnmarshalJSON(data []byte) error {
	var f approvalsFile
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	if f.Version != approvalsVersion {
		return fmt.Errorf("version %d of the approvals file is not known here", f.Version)
	}
	a.entries = f.Entries
	return nil
}

// Get returns the decision about a launch.
func (a Approvals) Get(hash string) (Approval, bool) {
	d, ok := a.entries[hash]
	return d, ok
}

// Set records the decision about a launch. What was decided about other forms
// of the same server stays, so that going back to one does not ask again.
func (a *Approvals) Set(hash string, decision Approval) {
	if a.entries == nil {
		a.entries = map[string]Approval{}
	}
	a.entries[hash] = decision
}

// Forget drops every decision about a project's servers and returns how many
// there were.
func (a *Approvals) Forget(project string) int {
	n := 0
	for hash, d := range a.entries {
		if d.Project == project {
			delete(a.entries, hash)
			n++
		}
	}
	return n
}

// Trust tells where an entry stands, given the hash of its launch: pending if
// it may be used, disabled if a person rejected it, else needs-approval. Only
// an entry whose file lies in a project needs approval, whatever its product
// calls the scope.
func Trust(e config.Entry, hash string, approvals Approvals) (state config.State, reason string) {
	if e.Origin.Project == "" {
		return config.Pending, ""
	}
	if decision, ok := approvals.Get(hash); ok && hash != "" {
		switch decision.Decision {
		case Approve:
			return config.Pending, ""
		case Reject:
			return config.Disabled, "rejected"
		}
	}
	for _, d := range approvals.entries {
		if d.Decision == Approve && d.Name == e.Name && d.File == e.Origin.File {
			return config.NeedsApproval, "changed since it was approved"
		}
	}
	return config.NeedsApproval, "comes from the project and is not approved yet"
}
