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

// Form is what a question of ModeForm asks for, and what an answer to it must
// look like.
type Form struct {
	Fields []FormField // in the order in which the server wrote them
	schema *jsonschema.Schema
}

// FormField is one value that a form asks for. Its texts are the server's.
type FormField struct {
	Name        string
	Title       string // empty means that the name is all there is to show
	Description string
	Type        string // string, number, integer, boolean, or array for several of Choices
	Required    bool
	Default     json.RawMessage // that it gets if it is left out; nil means none
	Choices     []FormChoice    // what it may be, or have; nil means anything of its type

	schema *jsonschema.Schema
}

// FormChoice is a value that a field may have.
type FormChoice struct {
	Value string
	Title string // empty means that the value is all there is to show
}

// maxFormSchema is more than any form that a person would fill in needs.
const maxFormSchema = 256 << 10

// formURL stands for the schema of a form, which is nowhere to be found.
const formURL = "patchbay:form"

// noSchemas loads nothing: a server must not have us read files or URLs.
type noSchemas struct{}

func (noSchemas) Load(string) (any, error) { return nil, errors.New("references are not followed") }

// Form reads what the question, which is of ModeForm, asks for.
func (r ElicitRequest) Form() (*Form, error) {
	schema := r.Schema
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
	f := &Form{}
	if f.schema, err = c.Compile(formURL); err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	properties, _ := wire.Member(schema, "properties")
	if !wire.IsObject(properties) {
		return f, nil
	}
	for name, property := range wire.Members(properties) {
		f.Fields = append(f.Fields, newFormField(name, property, f.schema))
	}
	return f, nil
}

func newFormField(name string, property json.RawMessage, form *jsonschema.Schema) FormField {
	f := FormField{Name: name, Required: slices.Contains(form.Required, name), schema: form.Properties[name]}
	f.Title, _ = wire.StringMember(property, "title")
	f.Description, _ = wire.StringMember(property, "description")
	f.Type, _ = wire.StringMember(property, "type")
	f.Default, _ = wire.Member(property, "default")
	if f.Type == "array" {
		property, _ = wire.Member(property, "items")
	}
	f.Choices = formChoices(property)
	return f
}

// formChoices are those of a schema, in whichever way it says them.
func formChoices(schema json.RawMessage) (all []FormChoice) {
	values, _ := wire.Member(schema, "enum")
	titles, _ := wire.Member(schema, "enumNames")
	for value := range wire.Elements(values) {
		text, _ := wire.Unquote(value)
		all = append(all, FormChoice{Value: text})
	}
	i := 0
	for title := range wire.Elements(titles) {
		if i < len(all) {
			all[i].Title, _ = wire.Unquote(title)
		}
		i++
	}
	for _, name := range []string{"oneOf", "anyOf"} {
		options, _ := wire.Member(schema, name)
		for option := range wire.Elements(options) {
			var c FormChoice
			c.Value, _ = wire.StringMember(option, "const")
			c.Title, _ = wire.StringMember(option, "title")
			all = append(all, c)
		}
	}
	return all
}

// Check reports what is wrong with a value of the field. The error is for whoever
// gave the value, which it may tell.
func (f FormField) Check(value json.RawMessage) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return errors.New("that is no JSON value")
	}
	if f.schema == nil {
		return nil
	}
	wrong, ok := errors.AsType[*jsonschema.ValidationError](f.schema.Validate(v))
	if !ok {
		return nil
	}
	if text, ok := f.noChoice(v); ok {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(f.values(), ", "))
	}
	var reasons []string
	for _, unit := range wrong.BasicOutput().Errors {
		if unit.Error != nil {
			reasons = append(reasons, unit.Error.String())
		}
	}
	return errors.New(strings.Join(reasons, "; "))
}

// noChoice finds what of a value that does not fit is none of the choices: of the
// several ways to say them, a validator explains some in its own terms only.
func (f FormField) noChoice(value any) (text string, found bool) {
	all, several := value.([]any)
	if !several {
		all = []any{value}
	}
	values := f.values()
	for _, one := range all {
		if text, ok := one.(string); ok && values != nil && !slices.Contains(values, text) {
			return text, true
		}
	}
	return "", false
}

func (f FormField) values() (all []string) {
	for _, c := range f.Choices {
		all = append(all, c.Value)
	}
	return all
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

// Fill adds the defaults of fields that content leaves out and checks the whole.
// Its error names fields and has nothing of their values.
func (f *Form) Fill(content json.RawMessage) (json.RawMessage, error) {
	if len(content) == 0 || string(content) == "null" {
		content = json.RawMessage(`{}`)
	}
	if wire.Valid(content, wire.Limits{}) != nil || !wire.IsObject(content) {
		return nil, errors.New("the content of the answer is no JSON object")
	}
	for _, field := range f.Fields {
		if _, given := wire.Member(content, field.Name); given || field.Default == nil {
			continue
		}
		filled, err := wire.SetMember(content, field.Default, field.Name)
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
