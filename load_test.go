package patchbay_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// A session loads the servers that it has, and starts no others.
func TestLoadOnlyOwnServers(t *testing.T) {
	c := newComputer(t)
	c.write(filepath.Join(c.home, ".cursor", "mcp.json"), `{"mcpServers": {"mine": {"command": "/nowhere/mine"}, "other": {"command": "/nowhere/other"}}}`)
	h := c.open()
	s, err := h.NewSession(patchbay.SessionOptions{Servers: []string{"mine"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, failed := s.Load(t.Context()); len(failed) != 1 || failed["mine"] == nil {
		t.Errorf("failed to load %v", failed)
	}
	if st, err := h.Server("other"); err != nil || st.State != config.Pending {
		t.Errorf("the other server is %s, %v", st.State, err)
	}
}

// Without HOME the home directory is what the system says.
func TestHomeUnset(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it is another variable there")
	}
	t.Setenv("HOME", "")
	os.Unsetenv("HOME")
	if home, err := patchbay.HomeDir(); err != nil || !filepath.IsAbs(home) {
		t.Errorf("got %q, %v", home, err)
	}
}
