package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestSecretCannotPrintItself(t *testing.T) {
	const text = "hunter2-hunter2"
	type holder struct {
		S config.Secret
		M map[string]config.Secret
		P *config.Secret

		hidden config.Secret // fmt looks at such a field without calling its methods
		within map[string]config.Secret
	}
	s := config.NewSecret(text)
	h := holder{S: s, M: map[string]config.Secret{"k": s}, P: &s, hidden: s, within: map[string]config.Secret{"k": s}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		fmt.Fprintf(&out, verb+"\n"+verb+"\n"+verb+"\n", s, h, &h)
	}
	fmt.Fprintln(&out, s, &s, []config.Secret{s}, fmt.Errorf("x: %v", s))
	for _, v := range []any{s, &s, h, map[config.Secret]int{s: 1}} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("m", "secret", s, "holder", h, slog.Group("g", "s", &s))
	}
	if strings.Contains(out.String(), text) || strings.Contains(out.String(), fmt.Sprintf("%x", text)) {
		t.Errorf("the secret was printed:\n%s", out.String())
	}
}

func TestSecretUnmarshals(t *testing.T) {
	var s config.Secret
	if err := json.Unmarshal([]byte(`"abc"`), &s); err != nil || s.Reveal() != "abc" {
		t.Errorf("got %q, %v", s.Reveal(), err)
	}
}

func TestMask(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		"sk-live-123":          "[redacted]",
		"${API_KEY}":           "${API_KEY}",
		"${CTX7_KEY:-none}":    "${CTX7_KEY:-none}",
		"${KEY:-sk-live-123}":  "${KEY:-[redacted]}",
		"Bearer ${TOKEN}":      "Bearer ${TOKEN}",
		"Bearer abc":           "[redacted]",
		"${env:TOKEN}":         "${env:TOKEN}",
		"${input:api-key}":     "${input:api-key}",
		"{env:TOKEN}":          "{env:TOKEN}",
		"$env:TOKEN":           "$env:TOKEN",
		"${{ secrets.TOKEN }}": "${{ secrets.TOKEN }}",
		"$TOKEN":               "$TOKEN",
		"$uper_secret":         "[redacted]",
		"x${TOKEN}":            "[redacted]",
		"${A}${B}":             "${A}${B}",
		"${A}tail":             "[redacted]",
		"!pass show token":     "[redacted]",
	} {
		if got := config.NewSecret(text).Mask(); got != want {
			t.Errorf("Mask(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestMaskTarget(t *testing.T) {
	for want, s := range map[string]config.Server{
		"https://a.test/mcp":                            {URL: "https://a.test/mcp"},
		"https://[redacted]@a.test/mcp":                 {URL: "https://me:pw@a.test/mcp"},
		"https://a.test/mcp?key=[redacted]&region=${R}": {URL: "https://a.test/mcp?key=abc&region=${R}"},
		"${BASE}/mcp?key=[redacted]":                    {URL: "${BASE}/mcp?key=abc"},
		"npx -y @acme/x --api-key [redacted] -v":        {Command: "npx", Args: []string{"-y", "@acme/x", "--api-key", "abc", "-v"}},
		"x --token=[redacted] API_KEY=[redacted] --n=1": {Command: "x", Args: []string{"--token=abc", "API_KEY=abc", "--n=1"}},
		`x "two words" "" "tab\t"`:                      {Command: "x", Args: []string{"two words", "", "tab\t"}},
		"mcp-remote https://a.test/?k=[redacted]":       {Command: "mcp-remote", Args: []string{"https://a.test/?k=v"}},
		"https://a.test/s/[redacted]/mcp":               {URL: "https://a.test/s/NDM2YTg4YWItZDQwZg0/mcp#key"},
		"https://a.test/[redacted]/sse":                 {URL: "https://a.test/3f2b8c1e-9a4d-4c77-b1de-0f5a6c2d9e81/sse"},
		"https://${H}/v1/projects/my-own-project-2024":  {URL: "https://${H}/v1/projects/my-own-project-2024"},

		`r --header "Authorization: Bearer ${T}" -H "X-Key: [redacted]" -H=A:[redacted]`: {Command: "r", Args: []string{"--header", "Authorization: Bearer ${T}", "-H", "X-Key: abc", "-H=A:abc"}},
		`docker run -e PLAIN=[redacted] --env=A=[redacted] -e PASSED_ON image`:           {Command: "docker", Args: []string{"run", "-e", "PLAIN=abc", "--env=A=abc", "-e", "PASSED_ON", "image"}},
		`sh -c "x --api-key '[redacted]' --depth 3; GH_TOKEN=[redacted] y"`:              {Command: "sh", Args: []string{"-c", "x --api-key 'abc' --depth 3; GH_TOKEN=abc y"}},
		"x --url=https://auth.test:8443/?k=[redacted] postgres://[redacted]@h/db":        {Command: "x", Args: []string{"--url=https://auth.test:8443/?k=v", "postgres://u:abc@h/db"}},
		`"npx x --token [redacted]" "Server=x;Password=[redacted];Port=1"`:               {Command: "npx x --token abc", Args: []string{"Server=x;Password=abc;Port=1"}},
		`x "curl -H 'Authorization: [redacted]' https://a"`:                              {Command: "x", Args: []string{"curl -H 'Authorization: Bearer abc' https://a"}},
		"x [redacted] [redacted] sky-blue ghost":                                         {Command: "x", Args: []string{"sk-proj-abcdefgh", "ghp_abcdefghijabcdefghij", "sky-blue", "ghost"}},
		"x [redacted]":                                                                   {Command: "x", Args: []string{strings.Repeat("a", 20_000)}},
	} {
		if got := s.Target(); got != want {
			t.Errorf("Target() = %q, want %q", got, want)
		}
	}
}
