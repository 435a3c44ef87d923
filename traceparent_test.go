package patchbay

import (
	"strings"
	"testing"
)

func FuzzTraceparent(f *testing.F) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, text := range []string{
		good, good + "-more", "01" + good[2:] + "-more", "01" + good[2:] + "more", "ff" + good[2:], strings.ToUpper(good), good[:54],
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		trace, span, sampled := parseTraceparent(text)
		if trace == "" {
			if span != "" || sampled {
				t.Errorf("%q: %q %v without a trace", text, span, sampled)
			}
			return
		}
		again, spanAgain, sampledAgain := parseTraceparent("00-" + trace + "-" + span + "-" + text[53:55])
		if again != trace || spanAgain != span || sampledAgain != sampled || !strings.HasPrefix(text[3:], trace+"-"+span) {
			t.Errorf("%q is %q, %q", text, trace, span)
		}
	})
}

func TestTraceparent(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for text, want := range map[string]bool{
		good: true, good + "-more": false, "01" + good[2:] + "-more": true, "01" + good[2:] + "more": false, "ff" + good[2:]: false, strings.ToUpper(good): false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
	} {
		if trace, _, sampled := parseTraceparent(text); (trace != "") != want || sampled != want {
			t.Errorf("%q: %q, %v", text, trace, sampled)
		}
	}
}
