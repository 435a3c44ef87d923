package policy

import (
	"encoding/json"
	"slices"
	"testing"
)

// A member that a person said does not count may change, be missing or come back;
// whatever else changes counts.
func TestIgnoredMembers(t *testing.T) {
	tool := func(day, description string) string {
		return `{"name":"q","description":"` + description + `","inputSchema":{"properties":{"a/b":{"enum":["x",` + day + `]},"day":{"default":` + day + `}}}}`
	}
	const day, enum = "/inputSchema/properties/day/default", "/inputSchema/properties/a~1b/enum/1"
	var p Pins
	p.Learn("s", defs(tool("1", "asks")), monday)
	now := json.RawMessage(tool("2", "asks"))
	if got, want := p.Differing("s", now), []string{"/inputSchema/properties/a~1b/enum", day}; !slices.Equal(got, want) {
		t.Errorf("differing are %q, want %q", got, want)
	}
	p.Accept("s", defs(tool("2", "asks")), map[string][]string{"q": {day}}, monday)
	p.Accept("s", defs(tool("2", "asks")), map[string][]string{"q": {enum}}, monday) // besides the first
	for def, holds := range map[string]bool{
		tool("2", "asks"): true, tool("3", "asks"): true, tool(`{"any":"thing"}`, "asks"): true, tool("3", "obey"): false,
		`{"name":"q","description":"asks","inputSchema":{"properties":{"a/b":{"enum":["x","y"]},"day":{}}}}`: true,
		`{"name":"q","description":"asks","inputSchema":{"properties":{"a/b":{"enum":["z","y"]},"day":{}}}}`: false,
	} {
		if p.Holds("s", json.RawMessage(def)) != holds {
			t.Errorf("%s holds: %v", def, !holds)
		}
		if changed := len(p.Check("s", defs(def)).Changed) > 0; changed == holds {
			t.Errorf("%s changed: %v", def, changed)
		}
		if diff := p.Diff("s", json.RawMessage(def)); (diff == "") != holds {
			t.Errorf("%s:\n%s", def, diff)
		}
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var again Pins
	if err := json.Unmarshal(data, &again); err != nil || !again.Holds("s", json.RawMessage(tool("4", "asks"))) {
		t.Errorf("once saved and read: %v", err)
	}
	for pointer, may := range map[string]bool{day: true, enum: true, "/description": true, "/name": false, "/Name": false, "": false, "description": false, "/nothing": false, "/inputSchema/properties/a~1b/enum/2": false} {
		if err := CheckIgnored(now, pointer); (err == nil) != may {
			t.Errorf("%q: %v", pointer, err)
		}
	}
}
