package config

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// A file without what lies beside the way is edited as the whole one is, whatever
// its layout; only how far to indent may be seen in another place.
func TestCondensedFilesAreEditedAlike(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	names := []string{"a", "b", "c", "d"}
	long := `"` + strings.Repeat("long ", 20) + `"`
	left := 0
	for range 500 {
		src := []byte(strings.ReplaceAll(randomObject(r, names, 3), "0", long))
		way := []string{names[r.IntN(4)], names[r.IntN(4)]}
		value, _ := ParseJSON([]byte(`{"a": 1, "b": [2]}`))
		want, wantErr := setMember(src, way, value)
		short, whole, err := condense(src, way, 0)
		if err != nil {
			if wantErr == nil || err.Error() != wantErr.Error() {
				t.Fatalf("%v, of the whole file: %v\n%s", err, wantErr, src)
			}
			continue
		}
		if len(short) < len(src) {
			left++
		}
		if back, err := whole(short); err != nil || !bytes.Equal(back, src) {
			t.Fatalf("%v: became\n%s\nfrom\n%s", err, back, src)
		}
		got, err := setMember(short, way, value)
		if err == nil {
			got, err = whole(got)
		}
		if err != nil || wantErr != nil || strings.Join(strings.Fields(string(got)), "") != strings.Join(strings.Fields(string(want)), "") {
			t.Fatalf("got\n%s\nwant\n%s\n%v, %v", got, want, err, wantErr)
		}
		checkSurroundings(t, src, got, way[0])
	}
	if left < 100 {
		t.Errorf("%d files were condensed", left)
	}
}

// A long file is edited in place, and an error in it has its line.
func TestEditLongFile(t *testing.T) {
	history := "[\n" + strings.Repeat(`    {"display": "typed \"once\" // and again", "at": 1e3},`+"\n", 200<<10) + "  ]"
	const head, tail = "{\n  \"history\": ", ",\n  \"projects\": {\n    \"/p\": {\"mcpServers\": {}, \"history\": [1]}\n  },\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"} // mine\n  }\n}\n"
	src := []byte(head + history + tail)
	if len(src) < 2*MaxFileSize {
		t.Fatal("not long")
	}
	added, err := SetMember(src, "/mcpServers/b", []byte(`{"command": "y"}`))
	want := head + history + strings.Replace(tail, "\"x\"} // mine\n", "\"x\"}, // mine\n    \"b\": {\n      \"command\": \"y\"\n    }\n", 1)
	if err != nil || string(added) != want {
		t.Fatalf("%v: the end is %.300s", err, added[min(len(added), len(head)+len(history)):])
	}
	if removed, err := RemoveMember(added, "/mcpServers/b"); err != nil || !bytes.Equal(removed, src) {
		t.Errorf("%v: removing it again does not give back the file", err)
	}
	if same, err := RemoveMember(src, "/mcpServers/no"); err != nil || !bytes.Equal(same, src) {
		t.Errorf("%v: a member that is not there", err)
	}
	broken := append(bytes.TrimSuffix(bytes.Clone(src), []byte("}\n")), ", \"mcpServers\": {}}\n"...)
	if _, err := SetMember(broken, "/mcpServers/b", []byte(`{}`)); err == nil || err.Error() != `line 204810: duplicate key "mcpServers"; keep one of them` {
		t.Errorf("twice the same: %v", err)
	}
	if _, err := SetMember(src[:len(src)-2], "/mcpServers/b", []byte(`{}`)); err == nil {
		t.Error("edited half a file")
	}
	if _, err := SetMember(src, "/mcpServers/b", []byte(`"`+strings.Repeat("x", MaxFileSize)+`"`)); err == nil {
		t.Error("kept more than can be read again")
	}
}
