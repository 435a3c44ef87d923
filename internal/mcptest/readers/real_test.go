//go:build readers

package readers

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

// TestRealReaders has servers in the languages that most are written in.
func TestRealReaders(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	about, err := json.Marshal(subjects)
	if err != nil {
		t.Fatal(err)
	}
	for program, script := range map[string]string{"node": "server.mjs", "python3": "server.py"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(program)
			if err != nil {
				t.Fatalf("%s is needed, in Debian the package %s: %v", program, map[string]string{"node": "nodejs", "python3": "python3"}[program], err)
			}
			testServer(t, config.Server{Command: path, Args: []string{script}, Cwd: dir, Env: map[string]config.Secret{"READERS_SUBJECTS": config.NewSecret(string(about))}})
		})
	}
}
