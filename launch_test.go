package patchbay

import (
	"os"
	"path/filepath"
	"testing"
)

func TestProgramDigests(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, b, c := file("a", "aaaa"), file("b", "bbbb"), file("c", "c")
	d := programDigests{left: 7, known: map[string]string{}}
	first := d.digest(a)
	if first == "" || d.digest(a) != first || d.left != 3 {
		t.Errorf("a program is read once: %q, %d left", first, d.left)
	}
	if sum := d.digest(b); sum != "" || d.left != 3 {
		t.Errorf("beyond the limit: %q, %d left", sum, d.left)
	}
	if sum := d.digest(c); sum == "" || sum == first {
		t.Errorf("within the limit: %q", sum)
	}
	for _, path := range []string{dir, filepath.Join(dir, "missing")} {
		if sum := d.digest(path); sum != "" {
			t.Errorf("%s: %q", path, sum)
		}
	}
}
