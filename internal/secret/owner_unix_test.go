//go:build unix

package secret

import "testing"

// A group counts as the user's alone if it is theirs by name and number, and
// nobody else is in it.
func TestAlone(t *testing.T) {
	const users = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000:Ada:/home/ada:/bin/sh\nbob:x:1001:1001::/home/bob:/bin/sh\n"
	for name, test := range map[string]struct {
		uid, gid      int
		users, groups string
		want          bool
	}{
		"of one's own":         {1000, 1000, users, "root:x:0:\nada:x:1000:\nbob:x:1001:\n", true},
		"with oneself in it":   {1000, 1000, users, "ada:x:1000:ada\n", true},
		"with another":         {1000, 1000, users, "ada:x:1000:ada,bob\n", false},
		"another's first one":  {1000, 1000, users + "eve:x:1002:1000::/:/bin/sh\n", "ada:x:1000:\n", false},
		"not the first one":    {1000, 1001, users, "bob:x:1001:\n", false},
		"of another name":      {1000, 1000, users, "staff:x:1000:\n", false},
		"not in the file":      {1000, 1000, users, "root:x:0:\n", false},
		"a user not in there":  {1005, 1005, users, "ada:x:1005:\n", false},
		"a line that is short": {1000, 1000, users + "broken\n", "nothing\nada:x:1000:\n", true},
	} {
		if got := alone(test.uid, test.gid, test.users, test.groups); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
