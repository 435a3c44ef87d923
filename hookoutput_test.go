package patchbay

import (
	"encoding/json"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Whatever a hook prints, what is taken from it can be used as it is.
func FuzzHookOutput(f *testing.F) {
	for _, seed := range []string{
		"", "ok", "{}", `{"continue":false}`, `{"decision":"block","reason":"x"}`,
		`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"a":1}}}`,
		`{"hookSpecificOutput":{"updatedMCPToolOutput":"text"}}`, `{"hookSpecificOutput":{"updatedMCPToolOutput":[{"type":"text","text":"x"}]}}`,
		`{"hookSpecificOutput":{"updatedMCPToolOutput":{"content":[]}}}`, `{"hookSpecificOutput":{"action":"accept","content":{"a":"b"}}}`,
		`{"hookSpecificOutput":{"action":"decline","content":null}}`, `{"hookSpecificOutput":null}`, "{\"reason\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	object := func(v json.RawMessage) bool {
		return v == nil || wire.Valid(v, wire.Limits{}) == nil && wire.IsObject(v)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, event := range []config.HookEvent{config.PreToolUse, config.PostToolUse, config.Elicitation, config.ElicitationResult, config.Notification} {
			a, err := parseHookOutput(event, data)
			switch {
			case err != nil && (a.blocks || a.permission != "" || a.arguments != nil || a.result != nil || a.elicited != nil):
				t.Errorf("%s: an answer and %v", event, err)
			case a.permission != "" && a.permission != Allow && a.permission != Ask:
				t.Errorf("%s: permission %q", event, a.permission)
			case a.permission != "" && event != config.PreToolUse, a.elicited != nil && event != config.Elicitation && event != config.ElicitationResult:
				t.Errorf("%s: an answer to another event: %+v", event, a)
			case !object(a.arguments), !object(a.result):
				t.Errorf("%s: arguments %s, result %s", event, a.arguments, a.result)
			}
			if a.result != nil {
				var content []json.RawMessage
				if raw, _ := wire.Member(a.result, "content"); json.Unmarshal(raw, &content) != nil || content == nil {
					t.Errorf("result %s", a.result)
				}
			}
			if e := a.elicited; e != nil && (e.Action != ElicitAccept && (e.Action != ElicitDecline && e.Action != ElicitCancel || e.Content != nil) || !object(e.Content)) {
				t.Errorf("%s: %+v", event, e)
			}
		}
	})
}
