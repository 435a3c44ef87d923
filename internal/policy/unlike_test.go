package policy

import (
	"reflect"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

// What differs is named; values are not.
func TestDiffer(t *testing.T) {
	base := func() Connection {
		return Connection{
			Written:    config.Server{Command: "x", Args: []string{"${A}"}, Env: map[string]config.Secret{"GH": config.NewSecret("${A}")}},
			Expanded:   config.Server{Command: "x", Args: []string{"1"}, Env: map[string]config.Secret{"GH": config.NewSecret("1")}, Cwd: "/here"},
			References: []string{"A=1"},
			Around:     Around{Environ: []string{"HOME=/h", "PATH=/bin"}},
		}
	}
	for name, c := range map[string]struct {
		change func(*Connection)
		want   Unlike
	}{
		"nothing":     {func(*Connection) {}, Unlike{}},
		"description": {func(c *Connection) { c.Written.Description = "d" }, Unlike{}},
		"directory":   {func(c *Connection) { c.Expanded.Cwd = "/there" }, Unlike{Directory: true}},
		"its value, which a placeholder has twice": {func(c *Connection) {
			c.References[0], c.Expanded.Args[0], c.Expanded.Env["GH"] = "A=2", "2", config.NewSecret("2")
		}, Unlike{Variables: []string{"A"}}},
		"not set":   {func(c *Connection) { c.References = nil }, Unlike{Variables: []string{"A"}}},
		"inherited": {func(c *Connection) { c.Around.Environ = []string{"HOME=/h", "LANG=C", "PATH=/usr/bin"} }, Unlike{Variables: []string{"LANG", "PATH"}}},
		"named":     {func(c *Connection) { c.Around.Named = []string{"HOME=/other"} }, Unlike{Variables: []string{"HOME"}}},
		"entry": {func(c *Connection) {
			c.Written.Args, c.Written.Env = nil, map[string]config.Secret{"GH": config.NewSecret("abc"), "NEW": config.NewSecret("n")}
		}, Unlike{Entry: []string{"args", "env.GH", "env.NEW"}}},
		"a placeholder of a product": {func(c *Connection) { c.Expanded.Args = []string{"/project"} }, Unlike{Entry: []string{"args"}}},
		"where commands run":         {func(c *Connection) { c.Around.Dir = "/project" }, Unlike{Directory: true}},
	} {
		changed := base()
		c.change(&changed)
		if got := Differ(base(), changed); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
