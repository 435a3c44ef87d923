package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	fmt.Fprintf(a.env.Stderr, "Server %q asks: %s\n", r.Server, escapeLines(r.Message))
	if r.Mode == patchbay.ModeURL {
		fmt.Fprintf(a.env.Stderr, "  Open %s\n  on   %s\n", config.Escape(r.URL), config.Escape(r.Host))
		return a.consent(ctx, "Go on?", nil)
	}
	form, err := r.Form()
	if err != nil {
		return patchbay.ElicitResult{}, err
	}
	given := map[string]json.RawMessage{}
	for _, f := range form.Fields {
		value, err := a.fill(ctx, f)
		if err != nil {
			return patchbay.ElicitResult{}, err
		}
		if value != nil {
			given[f.Name] = value
		}
	}
	content, err := json.Marshal(given)
	if err == nil {
		content, err = form.Fill(content)
	}
	if err != nil {
		return patchbay.ElicitResult{}, err
	}
	return a.consent(ctx, fmt.Sprintf("Send this to %q?", r.Server), content)
}

// consent asks whether an answer is to be given; what is not is declined.
func (a *app) consent(ctx context.Context, question string, content json.RawMessage) (patchbay.ElicitResult, error) {
	ok, err := a.confirm(ctx, question)
	if err != nil {
		return patchbay.ElicitResult{}, err
	}
	if !ok {
		return patchbay.ElicitResult{Action: patchbay.ElicitDecline}, nil
	}
	return patchbay.ElicitResult{Action: patchbay.ElicitAccept, Content: content}, nil
}

// fill asks for one field until the answer is one. Nothing is the default, or
// leaves out a field that need not be there.
func (a *app) fill(ctx context.Context, f patchbay.FormField) (json.RawMessage, error) {
	label := f.Name
	if f.Title != "" {
		label = f.Title
	}
	if f.Description != "" {
		fmt.Fprintf(a.env.Stderr, "  %s\n", config.Escape(f.Description))
	}
	if hint := fieldHint(f); hint != "" {
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
		case text == "" && !f.Required:
			return nil, nil
		}
		value, err := parseField(f, text)
		if err == nil {
			err = f.Check(value)
		}
		if err == nil {
			return value, nil
		}
		if a.ended {
			return nil, errInterrupted // nobody will give a better answer
		}
		fmt.Fprintf(a.env.Stderr, "  %s\n", config.Escape(err.Error()))
	}
}

// fieldHint says what an answer looks like.
func fieldHint(f patchbay.FormField) string {
	var choices, parts []string
	for _, c := range f.Choices {
		text := c.Value
		if c.Title != "" {
			text += " (" + c.Title + ")"
		}
		choices = append(choices, text)
	}
	switch {
	case f.Type == "array":
		parts = append(parts, "any of "+strings.Join(choices, ", "))
	case len(choices) > 0:
		parts = append(parts, strings.Join(choices, ", "))
	case f.Type == "boolean":
		parts = append(parts, "yes or no")
	case f.Type == "number", f.Type == "integer":
		parts = append(parts, f.Type)
	}
	if len(f.Default) > 0 {
		parts = append(parts, "default "+string(f.Default))
	} else if !f.Required {
		parts = append(parts, "optional")
	}
	return strings.Join(parts, "; ")
}

// parseField reads an answer as a value of the field's type.
func parseField(f patchbay.FormField, text string) (json.RawMessage, error) {
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
		words := []string{}
		for word := range strings.SplitSeq(text, ",") {
			words = append(words, strings.TrimSpace(word))
		}
		return json.Marshal(words)
	}
	if text == "" {
		return nil, errors.New("an answer is needed here")
	}
	return json.Marshal(text)
}
