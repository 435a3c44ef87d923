package config

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func decode(t *testing.T, data []byte) (Server, []Problem) {
	t.Helper()
	n, err := ParseJSON(data)
	if err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	f := NewFields(n, "", "")
	s := DecodeServer(f)
	s.Extra = f.Rest()
	return s, *f.Problems
}

// everyField is a server with every field of the model set to something
// telling; text gives the values of strings and secrets.
func everyField(text func(field string) string) Server {
	var s Server
	fill(reflect.ValueOf(&s).Elem(), "", func(string) bool { return true }, text)
	return s
}

// fill sets the fields of a value that want picks.
func fill(v reflect.Value, path string, want func(string) bool, text func(string) string) {
	switch v.Interface().(type) {
	case Secret:
		v.Set(reflect.ValueOf(NewSecret(text(path))))
		return
	case json.RawMessage:
		raw := appendString([]byte(`[{"x":`), text(path))
		v.Set(reflect.ValueOf(json.RawMessage(append(raw, `},1,null,true]`...))))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(path))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(8080)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path, want, text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), fmt.Sprint(path, ".", i), want, text)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range []string{"Zeta", "Alpha"} {
			elem := reflect.New(v.Type().Elem()).Elem()
			fill(elem, path+"."+key, want, text)
			v.SetMapIndex(reflect.ValueOf(key), elem)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := path + "." + v.Type().Field(i).Name; want(name) {
				fill(v.Field(i), name, want, text)
			}
		}
	default:
		panic("no value for " + v.Type().String())
	}
}

func TestEncodeServerRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	texts := []string{"plain", "${VAR}", `a "quoted" \ <&> text`, "päivä \u2028", "\x00\n", " "}
	for i := range 500 {
		var s Server
		fill(reflect.ValueOf(&s).Elem(), "", func(field string) bool {
			// What is always written must be set: absent and empty are one.
			switch field[strings.LastIndex(field, ".")+1:] {
			case "Name", "AccessToken", "ClientID":
				return true
			}
			return i == 0 || r.IntN(2) == 0
		}, func(string) string { return texts[r.IntN(len(texts))] })
		if r.IntN(4) == 0 {
			s.EnabledTools, s.Args, s.Env = []string{}, []string{}, map[string]Secret{}
		}
		encoded := EncodeServer(s)
		got, problems := decode(t, encoded)
		if len(problems) > 0 {
			t.Fatalf("%s\ngives %v", encoded, problems)
		}
		if !reflect.DeepEqual(got, s) {
			t.Fatalf("%s\ndecodes to\n%s", encoded, EncodeServer(got))
		}
	}
}

func TestEncodeServerOrder(t *testing.T) {
	s := Server{
		Type: Stdio, Command: "npx", Args: []string{"-y", "<pkg>"}, Env: map[string]Secret{"B": NewSecret("2"), "A": NewSecret("1")},
		Enabled: new(bool), EnabledTools: []string{},
		Extra: map[string]json.RawMessage{"zoo": []byte(`[1]`), "alwaysAllow": []byte(`["x"]`), "command": []byte(`"other"`)},
	}
	want := `{"type":"stdio","command":"npx","args":["-y","<pkg>"],"env":{"A":"1","B":"2"},"enabled":false,"enabledTools":[],"alwaysAllow":["x"],"zoo":[1]}`
	if got := string(EncodeServer(s)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(EncodeServer(Server{})); got != "{}" {
		t.Errorf("nothing is %s", got)
	}
}

// Every confidential value of the model is replaced, and so are texts in
// members that nobody knows.
func TestMarshalMasked(t *testing.T) {
	const secret = "hunter2-secret"
	s := everyField(func(field string) string {
		switch {
		case strings.HasSuffix(field, "URL"):
			return "https://user:" + secret + "@example.com/mcp?key=" + secret
		case strings.HasPrefix(field, ".Args"):
			return "--token=" + secret
		case strings.Contains(field, "Extra"), strings.Contains(field, ".Env."), strings.Contains(field, ".Headers."),
			strings.HasSuffix(field, "Secret"), strings.HasSuffix(field, "Token"), strings.HasSuffix(field, ".Key"),
			field == ".Auth.ClientID":
			return secret
		default:
			return "readable"
		}
	})
	before := string(EncodeServer(s))
	masked := string(MarshalMasked(s))
	if strings.Contains(masked, secret) {
		t.Errorf("secret in %s", masked)
	}
	if strings.Count(before, secret) < 20 || strings.Count(masked, redacted) < 20 {
		t.Errorf("too few secrets to be a test:\n%s\n%s", before, masked)
	}
	if string(EncodeServer(s)) != before {
		t.Error("masking changed the server")
	}

	s = Server{URL: "https://example.com/?k=v", Headers: map[string]Secret{"Authorization": NewSecret("Bearer ${TOKEN}")},
		Extra: map[string]json.RawMessage{"a": []byte(`{"b":["text",1,true,"${VAR}"]}`), "broken": []byte(`{`)}}
	want := `{"url":"https://example.com/?k=[redacted]","headers":{"Authorization":"Bearer ${TOKEN}"},"a":{"b":["[redacted]",1,true,"${VAR}"]},"broken":"[redacted]"}`
	if got := string(MarshalMasked(s)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
