package patchbay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// form is what an answer to a question must look like.
type form struct {
	schema   *jsonschema.Schema
	defaults []formDefault
}

type formDefault struct {
	field string
	value json.RawMessage
}

// maxFormSchema is more than any form that a person would fill in needs.
const maxFormSchema = 256 << 10

// formURL stands for the schema of a form, which is nowhere to be found.
const formURL = "patchbay:form"

// noSchemas loads nothing: a server must not have us read files or URLs.
type noSchemas struct{}

func (noSchemas) Load(string) (any, error) { return nil, errors.New("references are not followed") }

// newForm reads the schema of a question.
func newForm(schema json.RawMessage) (*form, error) {
	switch {
	case len(schema) == 0 || string(schema) == "null":
		schema = json.RawMessage(`{"type":"object"}`) // a question to agree to
	case !wire.IsObject(schema):
		return nil, errors.New("requestedSchema must be an object")
	case len(schema) > maxFormSchema:
		return nil, errors.New("requestedSchema is too large")
	}
	if kind, _ := wire.StringMember(schema, "type"); kind != "object" {
		return nil, errors.New(`requestedSchema must be of type "object"`)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	if refers(doc) {
		return nil, errors.New("requestedSchema must not refer to schemas")
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noSchemas{})
	c.AssertFormat()
	if err := c.AddResource(formURL, doc); err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	f := &form{}
	if f.schema, err = c.Compile(formURL); err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	properties, _ := wire.Member(schema, "properties")
	if !wire.IsObject(properties) {
		return f, nil
	}
	for name, property := range wire.Members(properties) {
		if value, ok := wire.Member(property, "default"); ok {
			f.defaults = append(f.defaults, formDefault{name, value})
		}
	}
	return f, nil
}

// refers reports whether a schema refers to others, or to parts of itself: forms
// have no need to, and a few references can take for ever to follow.
func refers(schema any) bool {
	switch v := schema.(type) {
	case map[string]any:
		for name, value := range v {
			if name == "$ref" || name == "$dynamicRef" || name == "$recursiveRef" || refers(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, refers)
	}
	return false
}

// fill adds the defaults of fields that content leaves out and checks the whole.
// Its error names fields and has nothing of their values.
func (f *form) fill(content json.RawMessage) (json.RawMessage, error) {
	if len(content) == 0 || string(content) == "null" {
		content = json.RawMessage(`{}`)
	}
	if wire.Valid(content, wire.Limits{}) != nil || !wire.IsObject(content) {
		return nil, errors.New("the content of the answer is no JSON object")
	}
	for _, d := range f.defaults {
		if _, given := wire.Member(content, d.field); given {
			continue
		}
		filled, err := wire.SetMember(content, d.value, d.field)
		if err != nil {
			return nil, err
		}
		content = filled
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err != nil {
		return nil, errors.New("the content of the answer is no JSON object")
	}
	if err := f.schema.Validate(value); err != nil {
		return nil, fmt.Errorf("the content of the answer does not fit the schema: %s", wrongFields(err))
	}
	return content, nil
}

// wrongFields says where a value does not fit its schema.
func wrongFields(err error) string {
	var places []string
	var visit func(e *jsonschema.ValidationError)
	visit = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			visit(cause)
		}
		if len(e.Causes) == 0 {
			places = append(places, "/"+strings.Join(e.InstanceLocation, "/"))
		}
	}
	if e, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		visit(e)
	}
	slices.Sort(places)
	return strings.Join(slices.Compact(places), ", ")
}
