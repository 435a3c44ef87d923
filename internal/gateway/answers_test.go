package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// No answer is lost: whatever a server writes in place of one, its caller gets it,
// or hears at once what was wrong with it, and nobody else notices.

// soon bounds how long a caller may be left in the dark. Machines that run many
// tests at once are slow.
const soon = 5 * time.Second

// rawCall has the scripted server print a line where its answer should be.
func rawCall(t *testing.T, a *agent, tool, line string) (json.RawMessage, error) {
	t.Helper()
	arguments, err := json.Marshal(map[string]string{"text": line})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), soon)
	defer stop()
	return a.CallTool(ctx, tool, arguments)
}

func TestEveryAnswerArrives(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 990) + "1" + strings.Repeat("}", 990)
	results := map[string]string{
		"a lone surrogate":    `{"content":[{"type":"text","text":"a\ud83cb\udc00"}],"resultType":"complete"}`,
		"a name twice":        `{"content":[],"structuredContent":{"a":1,"a":2,"\u0061":3},"resultType":"complete"}`,
		"our own name twice":  `{"content":[],"x":1,"x":2,"structuredContent":{"_meta":1,"_meta":2},"resultType":"complete"}`,
		"depth":               `{"content":[],"structuredContent":` + deep + `,"resultType":"complete"}`,
		"large and not plain": `{"content":[{"type":"text","text":"` + strings.Repeat("x", 2<<20) + `\ud800"}],"a":{"a":1,"a":2},"resultType":"complete"}`,
	}
	invalid := map[string]string{
		"NaN":               `{"jsonrpc":"2.0","id":$id,"result":{"content":[],"structuredContent":{"n":NaN}}}`,
		"the id at the end": `{"result":{"content":[],"structuredContent":{"n":-Infinity}},"jsonrpc":"2.0","id":$id}`,
		"a large NaN":       `{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 2<<20) + `"}],"n":NaN}}`,
		"too deep":          `{"jsonrpc":"2.0","id":$id,"result":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`,
		"a line break":      `{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"a` + "\n" + `b"}]}}`,
		"no result":         `{"jsonrpc":"2.0","id":$id,"result":{},"error":{"code":1,"message":"both"}}`,
		"contradictory":     `{"jsonrpc":"2.0","id":$id,"result":{"content":[],"resultType":"complete","resultType":"input_required"}}`,
	}
	for _, discover := range []string{"answer", "unknown"} {
		w := newWorld(t, nil, map[string]config.Server{"srv": scripted(t, "-discover", discover)}, nil)
		for _, over := range []string{"http", "stdio"} {
			for _, version := range []string{wire.Version20251125, wire.Version20260728} {
				for endpoint, tool := range map[string]string{"": "mcp__srv__raw", "srv": "raw"} {
					t.Run(fmt.Sprintf("%s %s %s %s", discover, over, version, tool), func(t *testing.T) {
						a := w.connect(t, over, version, endpoint, `{}`)
						pid := strings.Replace(tool, "raw", "pid", 1)
						before := a.call(t, pid, `{}`)
						for name, result := range results {
							raw, err := rawCall(t, a, tool, `{"jsonrpc":"2.0","id":$id,"result":`+result+`}`)
							if err != nil || !strings.Contains(string(raw), strings.TrimPrefix(result, "{")) {
								t.Errorf("%s: got %.200s, %v", name, raw, err)
							}
						}
						raw, err := rawCall(t, a, tool, `{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"fine"}],"resultType":"complete"},"error":null}`)
						if err != nil || textOf(raw) != "fine" {
							t.Errorf("error null: got %s, %v", raw, err)
						}
						for name, line := range invalid {
							raw, err := rawCall(t, a, tool, line)
							failed, _ := wire.Member(raw, "isError")
							if err != nil || string(failed) != "true" || !strings.Contains(textOf(raw), "the answer is invalid: not ") {
								t.Errorf("%s: got %.300s, %v", name, raw, err)
							}
						}
						if after := a.call(t, pid, `{}`); after != before {
							t.Errorf("the server was started again: %s, then %s", before, after)
						}
					})
				}
			}
		}
	}
}

// A server that writes its log to standard output as well lives on as long as it
// answers.
func TestLogLinesBesideAnswers(t *testing.T) {
	w := newWorld(t, nil, map[string]config.Server{"srv": scripted(t)}, nil)
	a := w.connect(t, "http", wire.Version20251125, "srv", `{}`)
	before := a.call(t, "pid", `{}`)
	for i := range 300 {
		if got := a.call(t, "noise", `{"count":10,"bytes":40}`); got != "noisy" {
			t.Fatalf("call %d: got %q", i, got)
		}
	}
	if after := a.call(t, "pid", `{}`); after != before {
		t.Errorf("the server was started again: %s, then %s", before, after)
	}
}
