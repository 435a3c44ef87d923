package config

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// EncodeServer renders a server in the native form, for a file: DecodeServer
// reads it back as the same server. Secrets are in it.
//
// Members come in the order of the model, unknown ones behind them under their
// own names, and what is not set is left out.
func EncodeServer(s Server) json.RawMessage {
	return encoder{}.value(nil, reflect.ValueOf(s))
}

// MarshalMasked renders a server like EncodeServer, for people: nothing that
// may be confidential is in it. Of members the model does not know, texts are
// masked as if they were secrets.
func MarshalMasked(s Server) json.RawMessage {
	s.Command, s.HeadersHelper = MaskText(s.Command), MaskText(s.HeadersHelper)
	if s.Args != nil {
		s.Args = maskArgs(s.Args)
	}
	return encoder{masked: true}.value(nil, reflect.ValueOf(s))
}

// encoder walks the model, so that a field added to it is written too.
type encoder struct{ masked bool }

func (e encoder) value(b []byte, v reflect.Value) []byte {
	switch x := v.Interface().(type) {
	case Secret:
		return e.secret(b, x)
	case json.RawMessage:
		return append(b, x...)
	case Sharing:
		if x == SharedNever || x == SharedSame {
			return append(b, x...)
		}
	}
	switch v.Kind() {
	case reflect.String:
		return appendString(b, v.String())
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Int, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10)
	case reflect.Pointer:
		return e.value(b, v.Elem())
	case reflect.Slice:
		w := listWriter{b: append(b, '[')}
		for i := range v.Len() {
			w.b = e.value(w.next(), v.Index(i))
		}
		return append(w.b, ']')
	case reflect.Map:
		w := listWriter{b: append(b, '{')}
		for _, key := range slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int {
			return strings.Compare(a.String(), b.String())
		}) {
			w.b = e.value(w.name(key.String()), v.MapIndex(key))
		}
		return append(w.b, '}')
	default:
		return e.members(b, v)
	}
}

// members renders a struct, its unknown members included.
func (e encoder) members(b []byte, v reflect.Value) []byte {
	w := listWriter{b: append(b, '{')}
	known := map[string]bool{}
	var extra map[string]json.RawMessage
	for f := range modelFields(v.Type()) {
		field := v.FieldByIndex(f.index)
		if f.isExtra {
			extra = field.Interface().(map[string]json.RawMessage)
			continue
		}
		known[f.name] = true
		// An empty list says something else than none.
		if f.optional && field.IsZero() {
			continue
		}
		if e.masked && strings.HasSuffix(strings.ToLower(f.name), "url") {
			field = reflect.ValueOf(maskURL(field.String()))
		}
		w.b = e.value(w.name(f.name), field)
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if known[name] {
			continue
		}
		if w.b = w.name(name); e.masked {
			w.b = e.unknown(w.b, extra[name])
		} else {
			w.b = append(w.b, extra[name]...)
		}
	}
	return append(w.b, '}')
}

func (e encoder) secret(b []byte, s Secret) []byte {
	if e.masked {
		return appendString(b, s.Mask())
	}
	return appendString(b, s.Reveal())
}

// unknown masks every text of a value whose meaning is not known.
func (e encoder) unknown(b []byte, raw json.RawMessage) []byte {
	n, err := ParseJSON(raw)
	if err != nil {
		return appendString(b, redacted)
	}
	var mask func(n *Node)
	mask = func(n *Node) {
		if n.Kind == String {
			n.Text = NewSecret(n.Text).Mask()
		}
		for i := range n.Items {
			mask(&n.Items[i])
		}
		for i := range n.Members {
			mask(&n.Members[i].Value)
		}
	}
	mask(&n)
	return n.appendJSON(b)
}

// listWriter puts commas between the parts of a list.
type listWriter struct {
	b    []byte
	some bool
}

func (w *listWriter) next() []byte {
	if w.some {
		w.b = append(w.b, ',')
	}
	w.some = true
	return w.b
}

func (w *listWriter) name(name string) []byte {
	return append(appendString(w.next(), name), ':')
}

// modelField is one field of a struct of the model, as a file has it.
type modelField struct {
	name     string
	index    []int
	typ      reflect.Type
	optional bool // it is left out when it is not set
	isExtra  bool // it holds the members that have no field
}

// modelFields lists the fields of a struct of the model in order.
func modelFields(t reflect.Type) func(yield func(modelField) bool) {
	return func(yield func(modelField) bool) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			if !yield(modelField{
				name: name, index: f.Index, typ: f.Type, optional: strings.Contains(options, "omit"),
				isExtra: f.Type == reflect.TypeFor[map[string]json.RawMessage](),
			}) {
				return
			}
		}
	}
}
