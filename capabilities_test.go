package patchbay

import (
	"context"
	"encoding/json"
	"testing"
)

// Servers are told exactly what can be answered, by the session's user or by the
// host.
func TestDeclaredCapabilities(t *testing.T) {
	elicit := func(context.Context, string, json.RawMessage) (json.RawMessage, error) { return nil, nil }
	both, forms := elicitModes{true, true}, elicitModes{form: true}
	for _, tt := range []struct {
		client *Client
		host   elicitModes
		want   string
	}{
		{nil, elicitModes{}, `{}`},
		{nil, both, `{"elicitation":{"form":{},"url":{}}}`},
		{nil, forms, `{"elicitation":{"form":{}}}`},
		{&Client{}, elicitModes{}, `{}`},
		{&Client{Elicit: elicit}, elicitModes{}, `{"elicitation":{"form":{},"url":{}}}`},
		{&Client{Elicit: elicit}, forms, `{"elicitation":{"form":{},"url":{}}}`},
		{&Client{Elicit: elicit, Capabilities: json.RawMessage(`{ "elicitation": {} }`)}, elicitModes{}, `{ "elicitation": {} }`},
		{&Client{Elicit: elicit, Capabilities: json.RawMessage(`{ "elicitation": {} }`)}, forms, `{ "elicitation": {} }`},
		{&Client{Elicit: elicit, Capabilities: json.RawMessage(`{ "elicitation": {} }`)}, both, `{ "elicitation": {"form":{},"url":{}} }`},
		{&Client{Elicit: elicit, Capabilities: json.RawMessage(`{"elicitation":{"url":{"x":1}}}`)}, both, `{"elicitation":{"url":{"x":1},"form":{}}}`},
		{&Client{Elicit: elicit, Capabilities: json.RawMessage(`{"elicitation":{"url":{}}}`)}, elicitModes{}, `{"elicitation":{"url":{}}}`},
		{&Client{Capabilities: json.RawMessage(`{"sampling":{}}`)}, both, `{"sampling":{},"elicitation":{"form":{},"url":{}}}`},
		{&Client{Capabilities: json.RawMessage(`{"sampling":{}}`)}, elicitModes{}, `{"sampling":{}}`},
	} {
		if got := string(tt.client.capabilities(tt.host)); got != tt.want {
			t.Errorf("%+v and %+v declare %s, want %s", tt.client, tt.host, got, tt.want)
		}
	}
}
