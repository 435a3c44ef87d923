package config

import (
	"flag"
	"os"
	"testing"
)

// update makes the tests rewrite their expected output instead of checking it.
var update = flag.Bool("update", false, "rewrite expected output")

// golden compares got with a file.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs; go test -update rewrites it\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}
