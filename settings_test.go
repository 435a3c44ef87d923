package patchbay_test

import (
	"cmp"
	"path/filepath"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// What a program that serves does not take up of changed settings is a problem of
// their file, until they are as they were.
func TestSettingsThatTakeARestart(t *testing.T) {
	const usual = `{"gateway": {"listen": "127.0.0.1:7001", "allowedHosts": ["a"]}}`
	for _, tt := range []struct {
		before string // empty means usual
		after  string
		change func(*patchbay.Options)
		want   []string
	}{
		{after: usual},
		{after: `{"gateway": {"listen": "127.0.0.1:7001", "allowedHosts": ["a"], "allowedOrigins": []}}`},
		{before: `{}`, after: `{"gateway": {"listen": "` + config.DefaultListen + `"}}`},
		{after: `{"gateway": {"listen": "127.0.0.1:7001", "allowedHosts": ["a"], "profiles": {"few": {"servers": []}}}}`},
		{after: `{}`, want: []string{"/gateway/listen", "/gateway/allowedHosts"}},
		{after: `{"gateway": {"listen": "127.0.0.1:7002", "allowedHosts": ["a"], "allowedOrigins": ["https://b.example.test"]}}`, want: []string{"/gateway/listen", "/gateway/allowedOrigins"}},
		{after: `{}`, change: func(o *patchbay.Options) { o.Served = []string{"http://127.0.0.1:7003/mcp"} }, want: []string{"/gateway/allowedHosts"}},
		{after: `{}`, change: func(o *patchbay.Options) { o.Serves = false }},
	} {
		before := cmp.Or(tt.before, usual)
		c := newComputer(t)
		c.opts.Serves = true
		if tt.change != nil {
			tt.change(&c.opts)
		}
		file := filepath.Join(c.home, ".config", "patchbay", "settings.json")
		c.write(file, before)
		h := c.open()
		c.write(file, tt.after)
		if err := h.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range h.Snapshot().Problems {
			got = append(got, p.Pointer)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v instead of %v", tt.after, got, tt.want)
		}
		c.write(file, before)
		if err := h.Reload(t.Context()); err != nil || len(h.Snapshot().Problems) > 0 {
			t.Errorf("as it was: %v, %v", h.Snapshot().Problems, err)
		}
	}
}
