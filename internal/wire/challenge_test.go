package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseChallenges(t *testing.T) {
	params := func(kv ...string) map[string]string {
		m := make(map[string]string)
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	const metadata = "https://rs.example/.well-known/oauth-protected-resource"
	tests := []struct {
		name    string
		headers []string
		want    []Challenge
	}{
		{"none", nil, nil},
		{"empty", []string{"", " , ,"}, nil},
		{"bare scheme", []string{"Bearer"}, []Challenge{{Scheme: "bearer"}}},
		{"metadata", []string{`Bearer resource_metadata="` + metadata + `", scope="a b"`},
			[]Challenge{{Scheme: "bearer", Params: params("resource_metadata", metadata, "scope", "a b")}}},
		{"insufficient scope", []string{`Bearer error="insufficient_scope", error_description="say \"please\", then", scope=files:write`},
			[]Challenge{{Scheme: "bearer", Params: params("error", "insufficient_scope", "error_description", `say "please", then`, "scope", "files:write")}}},
		{"two in one header", []string{`Basic realm="a, b", Bearer scope="x", error="invalid_token"`},
			[]Challenge{{Scheme: "basic", Params: params("realm", "a, b")}, {Scheme: "bearer", Params: params("scope", "x", "error", "invalid_token")}}},
		{"two headers", []string{`Negotiate`, `BEARER Scope = "x"`},
			[]Challenge{{Scheme: "negotiate"}, {Scheme: "bearer", Params: params("scope", "x")}}},
		{"token68", []string{`Negotiate YWJj/+==, Basic realm="r"`},
			[]Challenge{{Scheme: "negotiate", Token: "YWJj/+=="}, {Scheme: "basic", Params: params("realm", "r")}}},
		{"bare scheme then another", []string{`Negotiate, DPoP algs="ES256"`},
			[]Challenge{{Scheme: "negotiate"}, {Scheme: "dpop", Params: params("algs", "ES256")}}},
		{"unquoted URL", []string{`Bearer resource_metadata=` + metadata + ` , scope="x"`},
			[]Challenge{{Scheme: "bearer", Params: params("resource_metadata", metadata, "scope", "x")}}},
		{"quote never closed", []string{`Bearer scope="x, error="y`},
			[]Challenge{{Scheme: "bearer", Params: params("scope", "x, error=")}, {Scheme: "y"}}},
		{"first of two counts", []string{`Bearer a="1", A="2"`}, []Challenge{{Scheme: "bearer", Params: params("a", "1")}}},
		{"param without scheme", []string{`a="1", Bearer b="2"`}, []Challenge{{Scheme: "bearer", Params: params("b", "2")}}},
		{"param of another header", []string{`Bearer`, `a="1"`}, []Challenge{{Scheme: "bearer"}}},
		{"garbage", []string{`"x", Bearer a=1, é, b="2"`}, []Challenge{{Scheme: "bearer", Params: params("a", "1", "b", "2")}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ParseChallenges(tt.headers)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// format writes a challenge in the canonical form.
func (c Challenge) format() string {
	text := c.Scheme
	if c.Token != "" {
		text += " " + c.Token
	}
	var params []string
	for name, value := range c.Params {
		value = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value)
		params = append(params, fmt.Sprintf(`%s="%s"`, name, value))
	}
	slices.Sort(params)
	sep := " "
	if c.Token != "" {
		sep = ", "
	}
	for _, p := range params {
		text += sep + p
		sep = ", "
	}
	return text
}

// What was read, written in the canonical form, reads the same.
func FuzzParseChallenges(f *testing.F) {
	f.Add(`Bearer resource_metadata="https://a/b", scope="x y", error=invalid_token`, `Basic realm="a \"b\", c"`)
	f.Add(`Negotiate YWJj==, Digest a=b`, ` ,Bearer ,x = "y`)
	f.Fuzz(func(t *testing.T, a, b string) {
		got := ParseChallenges([]string{a, b})
		if len(got) > maxChallenges {
			t.Fatalf("%d challenges", len(got))
		}
		var canonical []string
		for _, c := range got {
			if len(c.Params) > maxChallengeArgs || c.Scheme == "" || c.Scheme != strings.ToLower(c.Scheme) {
				t.Fatalf("%+v", c)
			}
			canonical = append(canonical, c.format())
		}
		if diff := cmp.Diff(got, ParseChallenges(canonical)); diff != "" {
			t.Errorf("%q then %q (-first +second)\n%s", []string{a, b}, canonical, diff)
		}
		for _, c := range canonical {
			if len(c) > maxChallengeText {
				return // quoting made it longer than what is read
			}
		}
		if diff := cmp.Diff(got, ParseChallenges([]string{strings.Join(canonical, ", ")})); diff != "" {
			t.Errorf("%q joined (-first +second)\n%s", canonical, diff)
		}
	})
}
