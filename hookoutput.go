package patchbay

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// hookAnswer is what a command says about an event.
type hookAnswer struct {
	blocks     bool
	reason     string
	permission Effect          // Allow, Ask or nothing
	arguments  json.RawMessage // an object, in place of the call's
	result     json.RawMessage // of tools/call, in place of the server's
	elicited   *ElicitResult
}

// hookOutput is what a command prints. Members that are about what a model is
// told, or how the hook is shown, mean nothing here.
type hookOutput struct {
	Continue   *bool  `json:"continue"`
	StopReason string `json:"stopReason"`
	Decision   string `json:"decision"`
	Reason     string `json:"reason"`

	Specific struct {
		Event            config.HookEvent `json:"hookEventName"`
		Permission       string           `json:"permissionDecision"`
		PermissionReason string           `json:"permissionDecisionReason"`
		UpdatedInput     json.RawMessage  `json:"updatedInput"`
		UpdatedOutput    json.RawMessage  `json:"updatedMCPToolOutput"`
		Action           string           `json:"action"`
		Content          json.RawMessage  `json:"content"`
	} `json:"hookSpecificOutput"`
}

// parseHookOutput reads what a command printed. Text that is no JSON object is
// for people and says nothing. No error quotes what was printed.
func parseHookOutput(event config.HookEvent, data []byte) (hookAnswer, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || data[0] != '{' {
		return hookAnswer{}, nil
	}
	var out hookOutput
	if wire.Valid(data, wire.Limits{}) != nil || json.Unmarshal(data, &out) != nil {
		return hookAnswer{}, errors.New("it printed an object that is not valid JSON, or not what a hook may print")
	}
	if name := out.Specific.Event; name != "" && name != event {
		return hookAnswer{}, errors.New("it answered another event")
	}
	if out.Continue != nil && !*out.Continue {
		return hookAnswer{blocks: true, reason: out.StopReason}, nil
	}
	switch out.Decision {
	case "", "approve":
	case "block":
		return hookAnswer{blocks: true, reason: out.Reason}, nil
	default:
		return hookAnswer{}, errors.New("its decision is not known")
	}
	switch event {
	case config.PreToolUse:
		return out.beforeCall()
	case config.PostToolUse:
		result, err := toolResult(out.Specific.UpdatedOutput)
		return hookAnswer{result: result}, err
	case config.Elicitation, config.ElicitationResult:
		return out.elicitation()
	}
	return hookAnswer{}, nil
}

func (out *hookOutput) beforeCall() (hookAnswer, error) {
	a := hookAnswer{reason: out.Specific.PermissionReason}
	if present(out.Specific.UpdatedInput) {
		if a.arguments = out.Specific.UpdatedInput; !wire.IsObject(a.arguments) {
			return hookAnswer{}, errors.New("its updatedInput is no object")
		}
	}
	decision := out.Specific.Permission
	if decision == "" && out.Decision == "approve" { // as hooks of an older kind say it
		decision, a.reason = "allow", out.Reason
	}
	switch decision {
	case "":
	case "allow":
		a.permission = Allow
	case "ask":
		a.permission = Ask
	case "deny":
		return hookAnswer{blocks: true, reason: a.reason}, nil
	default:
		return hookAnswer{}, errors.New("its permissionDecision is not known")
	}
	return a, nil
}

func (out *hookOutput) elicitation() (hookAnswer, error) {
	answer := ElicitResult{Action: out.Specific.Action}
	if present(out.Specific.Content) {
		if answer.Content = out.Specific.Content; !wire.IsObject(answer.Content) {
			return hookAnswer{}, errors.New("its content is no object")
		}
	}
	switch answer.Action {
	case "":
		return hookAnswer{}, nil
	case ElicitAccept:
	case ElicitDecline, ElicitCancel:
		answer.Content = nil
	default:
		return hookAnswer{}, errors.New("its action is not known")
	}
	return hookAnswer{elicited: &answer}, nil
}

// toolResult makes a result of what a hook gives for one: a whole result, its
// content, or a text.
func toolResult(v json.RawMessage) (json.RawMessage, error) {
	if !present(v) {
		return nil, nil
	}
	var text string
	content, _ := wire.Member(v, "content")
	switch {
	case bytes.HasPrefix(bytes.TrimSpace(content), []byte("[")):
		return v, nil
	case json.Unmarshal(v, &text) == nil:
		text := wire.AppendString([]byte(`{"content":[{"type":"text","text":`), text)
		return append(text, `}]}`...), nil
	case v[0] == '[':
		return append(append([]byte(`{"content":`), v...), '}'), nil
	}
	return nil, errors.New("its updatedMCPToolOutput is no result of a tool")
}

// present reports whether a member is there and not null.
func present(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }
