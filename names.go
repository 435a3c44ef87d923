package patchbay

import (
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/bridge"
)

// joinNames renders a short list of names for a sentence.
func joinNames(names []string) string {
	seen := map[string]bool{}
	var unique []string
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			unique = append(unique, n)
		}
	}
	return strings.Join(unique, ", ")
}

// nearest returns the candidate that is at most two typing errors away from a
// word, and one in three letters, or nothing. It is for suggestions only: a
// guess is never acted on.
func nearest(word string, candidates []string) string {
	best, bestDistance := "", 3
	for _, c := range candidates {
		if d := bridge.Distance(word, c, bestDistance); d < bestDistance && 3*d <= len(c) {
			best, bestDistance = c, d
		}
	}
	return best
}
