package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// elicit puts a server's question to the person at the terminal: a form field by
// field, a URL to be opened. One question is asked at a time.
func (a *app) elicit(ctx context.Context, r patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
	a.asking.Lock()
	defer a.asking.Unlock()
	var q struct {
		Mode    string `json:"mode"`
		Message string `json:"message"`
		URL     string `json:"url"`
		Schema  form   `json:"requestedSchema"`
	}
	if err := json.Unmarshal(r.Params, &q); err != nil {
		return patchbay.ElicitResult{}, err
	}
	fmt.Fprintf(a.env.Stderr, "Server %q asks: %s\n", r.Server, escapeLines(q.Message))
	if q.Mode == "url" {
		return a.offerURL(ctx, q.URL)
	}
	content := map[string]json.RawMessage{}
	for _, f := range q.Schema.fields {
		value, err := a.fill(ctx, f)
		if err != nil {
			return patchbay.ElicitResult{}, err
		}
		if value != nil {
			content[f.name] = value
		}
	}
	return a.consent(ctx, fmt.Sprintf("Send this to %q?", r.Server), content)
}

// offerURL shows where a server sends the person, with the host that counts.
func (a *app) offerURL(ctx context.Context, target string) (patchbay.ElicitResult, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return patchbay.ElicitResult{}, errors.New("the server named no URL")
	}
	fmt.Fprintf(a.env.Stderr, "  Open %s\n  on   %s\n", config.Escape(target), config.Escape(u.Host))
	return a.consent(ctx, "Go on?", nil)
}

// consent asks whether an answer is to be given; what is not is declined.
func (a *app) consent(ctx context.Context, question string, content map[string]json.RawMessage) (patchbay.ElicitResult, error) {
	ok, err := a.confirm(ctx, question)
	if err != nil {
		return patchbay.ElicitResult{}, err
	}
	if !ok {
		return patchbay.ElicitResult{Action: patchbay.ElicitDecline}, nil
	}
	result := patchbay.ElicitResult{Action: patchbay.ElicitAccept}
	if content != nil {
		result.Content, err = json.Marshal(content)
	}
	return result, err
}

// form is the schema of a form: fields in the order in which they are written.
type form struct{ fields []field }

// field is one value that a form asks for.
type field struct {
	name     string
	required bool

	Type        string          `json:"type"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Default     json.RawMessage `json:"default"`
	choices
	Items choices `json:"items"` // of an array
}

// choices are the values that a field may have, in one of the forms of saying so.
type choices struct {
	Enum  []string `json:"enum"`
	OneOf []choice `json:"oneOf"`
	AnyOf []choice `json:"anyOf"`
}

type choice struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

// values returns what may be chosen, and what is shown of it.
func (c choices) values() (values, shown []string) {
	for _, v := range c.Enum {
		values, shown = append(values, v), append(shown, v)
	}
	for _, o := range append(c.OneOf, c.AnyOf...) {
		text := o.Const
		if o.Title != "" {
			text += " (" + o.Title + ")"
		}
		values, shown = append(values, o.Const), append(shown, text)
	}
	return values, shown
}

// UnmarshalJSON keeps the order of the properties.
func (f *form) UnmarshalJSON(data []byte) error {
	var schema struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	if err := json.Unmarshal(data, &schema); err != nil || len(schema.Properties) == 0 {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(schema.Properties))
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		f.fields = append(f.fields, field{})
		next := &f.fields[len(f.fields)-1]
		if err := dec.Decode(next); err != nil {
			return err
		}
		next.name, _ = name.(string)
		next.required = slices.Contains(schema.Required, next.name)
	}
	return nil
}

// fill asks for one field until the answer is one. Nothing is the default, or
// leaves out a field that need not be there.
func (a *app) fill(ctx context.Context, f field) (json.RawMessage, error) {
	label := f.name
	if f.Title != "" {
		label = f.Title
	}
	if f.Description != "" {
		fmt.Fprintf(a.env.Stderr, "  %s\n", config.Escape(f.Description))
	}
	if hint := f.hint(); hint != "" {
		label += " [" + hint + "]"
	}
	for {
		text, err := a.ask(ctx, "  "+config.Escape(label)+": ")
		if err != nil {
			return nil, err
		}
		switch {
		case text == "" && len(f.Default) > 0:
			return f.Default, nil
		case text == "" && !f.required:
			return nil, nil
		}
		value, err := f.parse(text)
		if err == nil {
			return value, nil
		}
		if a.ended {
			return nil, errInterrupted // nobody will give a better answer
		}
		fmt.Fprintf(a.env.Stderr, "  %s\n", config.Escape(err.Error()))
	}
}

// hint says what an answer looks like.
func (f field) hint() string {
	var parts []string
	_, shown := f.values()
	_, several := f.Items.values()
	switch {
	case len(shown) > 0:
		parts = append(parts, strings.Join(shown, ", "))
	case f.Type == "array":
		parts = append(parts, "any of "+strings.Join(several, ", "))
	case f.Type == "boolean":
		parts = append(parts, "yes or no")
	case f.Type == "number", f.Type == "integer":
		parts = append(parts, f.Type)
	}
	if len(f.Default) > 0 {
		parts = append(parts, "default "+string(f.Default))
	} else if !f.required {
		parts = append(parts, "optional")
	}
	return strings.Join(parts, "; ")
}

// parse reads an answer as the field's schema wants it.
func (f field) parse(text string) (json.RawMessage, error) {
	switch f.Type {
	case "boolean":
		switch strings.ToLower(text) {
		case "y", "yes", "true":
			return json.RawMessage("true"), nil
		case "n", "no", "false":
			return json.RawMessage("false"), nil
		}
		return nil, errors.New("answer yes or no")
	case "integer":
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return nil, errors.New("that is not a whole number")
		}
		return json.RawMessage(text), nil
	case "number":
		if !json.Valid([]byte(text)) || strings.ContainsAny(text, `"[{tfn`) {
			return nil, errors.New("that is not a number")
		}
		return json.RawMessage(text), nil
	case "array":
		values, _ := f.Items.values()
		chosen := []string{}
		for word := range strings.SplitSeq(text, ",") {
			word = strings.TrimSpace(word)
			if !slices.Contains(values, word) {
				return nil, fmt.Errorf("%q is not one of them; write those you want, with commas between them", word)
			}
			chosen = append(chosen, word)
		}
		return json.Marshal(chosen)
	}
	if values, _ := f.values(); len(values) > 0 && !slices.Contains(values, text) {
		return nil, fmt.Errorf("%q is not one of them", text)
	}
	if text == "" {
		return nil, errors.New("an answer is needed here")
	}
	return json.Marshal(text)
}
