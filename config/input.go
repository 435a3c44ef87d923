package config

import "slices"

// Input is a value that a product asks its user for: in its entries ${input:id}
// stands for the answer.
type Input struct {
	ID          string        `json:"id"`
	Description string        `json:"description,omitempty"`
	Password    bool          `json:"password,omitempty"` // what is typed must not be seen
	Options     []InputOption `json:"options,omitempty"`  // the answers there are; empty means any

	// Default is the answer of who gives none; nil means that there is none. It is
	// a secret if the input is a password.
	Default *Secret `json:"default,omitempty"`
}

// InputOption is one of the answers to an input.
type InputOption struct {
	Label string `json:"label,omitempty"` // for people; empty means the value
	Value string `json:"value"`
}

// Takes reports whether a text is an answer.
func (in Input) Takes(text string) bool {
	return len(text) <= maxAnswer && (len(in.Options) == 0 || slices.ContainsFunc(in.Options, func(o InputOption) bool { return o.Value == text }))
}

// maxAnswer bounds what somebody may type.
const maxAnswer = 64 << 10

// Answer is what somebody answered to an input.
type Answer struct {
	Text     Secret
	Password bool // it is secret however short it is
}

// Answered returns the same with what inputs stand for.
func (v Vars) Answered(answers map[string]Answer) Vars {
	v.Input = func(id string) (string, bool) {
		a, ok := answers[id]
		return a.Text.Reveal(), ok
	}
	return v
}
