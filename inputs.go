package patchbay

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/config"
)

// Inputs are a person's answers to what entries ask for (${input:id} in files of
// VS Code). They are kept in memory alone. The zero value has none; hosts may
// share one.
type Inputs struct {
	mu    sync.Mutex
	given map[inputKey]givenInput
	hosts map[*Host]bool // that are told of new ones
}

// inputKey is one input of one entry: what was typed for one server is no other
// one's, also if their file asks for both in the same words.
type inputKey struct{ file, pointer, id string }

// givenInput is an answer, to the question as it was then.
type givenInput struct {
	question config.Input
	answer   config.Secret
}

// InputStatus is an input of a server, and whether it was given. The answer itself
// is for the server alone.
type InputStatus struct {
	config.Input

	Default  string `json:"default,omitempty"`  // of an input that is no password
	Optional bool   `json:"optional,omitempty"` // who answers nothing gets the default
	Given    bool   `json:"given"`
}

// of returns the answers to an entry's inputs, and how each stands.
func (in *Inputs) of(e config.Entry) (answers map[string]config.Answer, all []InputStatus) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, question := range e.Inputs {
		st := InputStatus{Input: question, Optional: question.Default != nil}
		if st.Input.Default = nil; st.Optional && !question.Password {
			st.Default = question.Default.Reveal()
		}
		given, ok := in.given[inputKey{e.Origin.File, e.Origin.Pointer, question.ID}]
		if st.Given = ok && reflect.DeepEqual(given.question, question); st.Given {
			if answers == nil {
				answers = map[string]config.Answer{}
			}
			answers[question.ID] = config.Answer{Text: given.answer, Password: question.Password}
		}
		all = append(all, st)
	}
	return answers, all
}

// give keeps answers to an entry's inputs. Those that are left out keep theirs, or
// get the default.
func (in *Inputs) give(e config.Entry, answers map[string]string) error {
	had, _ := in.of(e)
	more := map[inputKey]givenInput{}
	for _, question := range e.Inputs {
		answer, ok := answers[question.ID]
		_, given := had[question.ID]
		switch {
		case ok && !question.Takes(answer):
			return errorf(KindConfigInvalid, "That is no answer to the input %q of %q.", question.ID, e.Name)
		case ok:
			more[inputKey{e.Origin.File, e.Origin.Pointer, question.ID}] = givenInput{question, config.NewSecret(answer)}
		case given:
		case question.Default != nil:
			more[inputKey{e.Origin.File, e.Origin.Pointer, question.ID}] = givenInput{question, *question.Default}
		default:
			return errorf(KindNeedsInput, "The input %q of %q was not given.", question.ID, e.Name)
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.given == nil {
		in.given = map[inputKey]givenInput{}
	}
	for key, given := range more {
		in.given[key] = given
	}
	return nil
}

// tell has a host be told of new answers, or not any more.
func (in *Inputs) tell(h *Host, on bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.hosts == nil {
		in.hosts = map[*Host]bool{}
	}
	if on {
		in.hosts[h] = true
	} else {
		delete(in.hosts, h)
	}
}

// others are the hosts, besides one, that are told.
func (in *Inputs) others(but *Host) (hosts []*Host) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for h := range in.hosts {
		if h != but {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// GiveInputs answers what a server asks for, by the ids of its inputs. An input
// that is left out keeps the answer it has, or gets its default. The answers are
// kept in memory, as long as the host and those that share its Inputs are open.
func (h *Host) GiveInputs(ctx context.Context, name string, answers map[string]string) (Change, error) {
	change, err := h.giveInputs(ctx, name, answers)
	if err != nil {
		return change, err
	}
	var others sync.WaitGroup // they have it, too, when this returns
	for _, other := range h.opts.Inputs.others(h) {
		others.Go(func() {
			if err := other.Reload(ctx); err != nil && other.life.Err() == nil {
				other.opts.Logger.Warn("configuration not read again", "error", err)
			}
		})
	}
	others.Wait()
	return change, nil
}

func (h *Host) giveInputs(ctx context.Context, name string, answers map[string]string) (Change, error) {
	ctx, end := h.change(ctx)
	defer end()
	st, err := h.askable(name)
	if err != nil {
		return Change{}, err
	}
	for id := range answers {
		if !contains(st.Inputs, id) {
			return Change{}, errorf(KindNotFound, "Server %q has no input %q.", st.Name, id)
		}
	}
	if err := h.opts.Inputs.give(st.entry, answers); err != nil {
		return Change{}, err
	}
	return Change{Action: "answered", Name: st.Name, Scope: st.Origin.Scope}, h.reload(ctx)
}

func contains(inputs []InputStatus, id string) bool {
	for _, in := range inputs {
		if in.ID == id {
			return true
		}
	}
	return false
}

// askable returns a server whose inputs a person may be asked for: what a project
// wants to know is nothing to answer before the project's entry is approved.
func (h *Host) askable(name string) (*ServerStatus, error) {
	st, err := h.reading.Load().find(name)
	switch {
	case err != nil:
		return nil, err
	case len(st.entry.Inputs) == 0 && st.entry.Valid():
		return nil, errorf(KindConfigInvalid, "Server %q asks for no input.", st.Name)
	case st.NeedsInput():
		return st, nil
	}
	if err := st.refusal(); err != nil {
		return nil, err
	}
	return st, nil
}

// needInput fails a server that may be used but for what its user has to be asked
// for.
func (h *Host) needInput(st *ServerStatus) {
	_, st.Inputs = h.opts.Inputs.of(st.entry)
	if missing := missingInputs(st.Inputs); st.State == config.Pending && len(missing) > 0 {
		st.State, st.Reason = config.Failed, fmt.Sprintf("needs input: %s; run patchbay inputs %s", strings.Join(missing, ", "), st.Name)
	}
}

// NeedsInput reports whether a server fails because its user was not asked for all
// that its entry wants to know: see Host.GiveInputs.
func (s *ServerStatus) NeedsInput() bool {
	return s.State == config.Failed && firstError(s.Problems) == "" && len(missingInputs(s.Inputs)) > 0
}

func missingInputs(inputs []InputStatus) (ids []string) {
	for _, in := range inputs {
		if !in.Given {
			ids = append(ids, fmt.Sprintf("%q", in.ID))
		}
	}
	return ids
}

// inputError is the error of who wants to use a server that needs input.
func inputError(st *ServerStatus) error {
	return errorf(KindNeedsInput, "Server %q needs input: %s.", st.Name, strings.Join(missingInputs(st.Inputs), ", ")).
		hint("Run patchbay inputs %s on a terminal, once.", st.Name)
}
