package policy

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/config"
)

// ApprovalHash returns the number an approval is bound to, as hexadecimal text.
// A changed byte of anything a Launch holds gives another one.
func ApprovalHash(l Launch) string {
	sum := sha256.Sum256(canonical([]byte("patchbay approval 1\n"), reflect.ValueOf(l)))
	return hex.EncodeToString(sum[:])
}

// ConnectHash returns a number that changes whenever a connection to the server
// would be another one, a rotated secret included. It is computed from expanded
// values, so it is keyed: without the installation's key it tells nothing about
// them. The dialect says which of them are commands that print a value, and
// around is what else decides: what the server gets of the environment.
func ConnectHash(key []byte, d config.Dialect, expanded config.Server, around Around) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(canonical([]byte("patchbay connection 1\n"), reflect.ValueOf(launchFields(expanded))))
	fmt.Fprintf(mac, "\nresolves %t\n", d.ResolvesValues())
	mac.Write(canonical(nil, reflect.ValueOf(around)))
	return hex.EncodeToString(mac.Sum(nil))
}

// Around is what of a host decides about a connection besides the entry itself.
type Around struct {
	Environ  []string // that a program inherits, or that decides how a URL is reached; see Deciding
	Named    []string // variables that the entry names, with their values, as NAME=value; those that are not set are left out
	Commands []string // the environment of commands that obtain values
	Dir      string   // and where they run
}

// canonical appends the one JSON rendering of a value: fields sorted by name
// and left out when empty, so that a field added later does not disturb
// approvals that do not use it; maps as sorted pairs; secrets in clear. Values
// that differ in a byte differ in their rendering.
func canonical(b []byte, v reflect.Value) []byte {
	switch x := v.Interface().(type) {
	case config.Secret:
		return appendText(b, x.Reveal())
	case json.RawMessage:
		return appendText(b, string(x))
	}
	switch v.Kind() {
	case reflect.String:
		return appendText(b, v.String())
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Int, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10)
	case reflect.Pointer:
		return canonical(b, v.Elem())
	case reflect.Slice:
		b = append(b, '[')
		for i := range v.Len() {
			b = canonical(separate(b), v.Index(i))
		}
		return append(b, ']')
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(x, y reflect.Value) int { return cmp.Compare(x.String(), y.String()) })
		b = append(b, '[')
		for _, key := range keys {
			b = appendText(append(separate(b), '['), key.String())
			b = append(canonical(append(b, ','), v.MapIndex(key)), ']')
		}
		return append(b, ']')
	case reflect.Struct:
		return canonicalStruct(b, v)
	default:
		panic("policy: a launch cannot hold a " + v.Type().String())
	}
}

func canonicalStruct(b []byte, v reflect.Value) []byte {
	var fields []reflect.StructField // few are not empty
	for i := range v.NumField() {
		value := v.Field(i)
		empty := value.IsZero() || (value.Kind() == reflect.Slice || value.Kind() == reflect.Map) && value.Len() == 0
		if empty {
			continue
		}
		if f := v.Type().Field(i); f.Tag.Get("hash") != "-" {
			fields = append(fields, f)
		}
	}
	slices.SortFunc(fields, func(x, y reflect.StructField) int { return cmp.Compare(x.Name, y.Name) })
	b = append(b, '{')
	for _, f := range fields {
		b = append(appendText(separate(b), f.Name), ':')
		b = canonical(b, v.FieldByIndex(f.Index))
	}
	return append(b, '}')
}

// separate appends a comma unless an array or object has just begun.
func separate(b []byte) []byte {
	if last := b[len(b)-1]; last == '[' || last == '{' {
		return b
	}
	return append(b, ',')
}

// appendText appends a JSON string, or an object in its place where the bytes
// are no text: replacing what is not UTF-8 would make different names equal.
func appendText(b []byte, s string) []byte {
	if !utf8.ValidString(s) {
		return append(append(append(b, `{"hex":"`...), hex.EncodeToString([]byte(s))...), `"}`...)
	}
	quoted, _ := json.Marshal(s) // a string always marshals
	return append(b, quoted...)
}
