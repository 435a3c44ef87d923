package wire

import (
	"math/bits"
	"net/url"
)

// Sign is a reason to make a call once more. These are all there are; what a
// server writes in a text is none.
type Sign uint8

const (
	// SignEnded: the connection ended, or was never made, or a server was too
	// busy. It is for calls that were not sent, and for those that are safe to
	// repeat.
	SignEnded Sign = 1 << iota

	SignCredential // HTTP 401, and the credential has changed since
	SignSession    // HTTP 404 to a request that carried a session id
	SignMoved      // an HTTP redirect within the origin
	SignHeaders    // CodeHeaderMismatch over HTTP, and the headers are others now
	SignVisited    // CodeURLElicitationRequired, and the person is done there
)

// maxRepeats is how often one call is made again in all.
const maxRepeats = 2

// Repeats counts how often one call is made again. Whoever is about to do that,
// on whichever floor, asks it first. It is not safe for concurrent use: a call is
// made again by the goroutine that made it. The zero value has counted none.
//
// The rounds of a call that needs input (input_required) are not counted here.
type Repeats struct {
	used  Sign
	moved *url.URL // where a redirect has sent the call
}

// countsRepeats reports whether a request of that method does something, so that a
// server that was sent it may have carried it out.
func countsRepeats(method string) bool { return method != "initialize" && !SafeToRepeat(method) }

// Again reports whether the call may be made once more on a sign, and counts it:
// each sign is good for one time.
func (r *Repeats) Again(s Sign) bool {
	if r.used&s != 0 || bits.OnesCount8(uint8(r.used)) >= maxRepeats {
		return false
	}
	r.used |= s
	return true
}
