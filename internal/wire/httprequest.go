package wire

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// checkPost checks the headers of a POST that say what its body is.
func (h *HTTPHandler) checkPost(r *http.Request) *Refusal {
	if types := r.Header["Content-Type"]; len(types) != 1 || !isJSON(types[0]) {
		return refuse(http.StatusUnsupportedMediaType, CodeInvalidRequest, "Content-Type must be application/json")
	}
	if encodings := r.Header["Content-Encoding"]; len(encodings) > 0 && (len(encodings) > 1 || encodings[0] != "identity") {
		return refuse(http.StatusUnsupportedMediaType, CodeInvalidRequest, "Content-Encoding is not supported")
	}
	if a := parseAccept(r.Header["Accept"]); !a.json && (!a.stream || h.opts.JSONOnly) {
		return notAcceptable("application/json and text/event-stream")
	}
	if h.opts.RequireLength && r.ContentLength < 0 {
		return refuse(http.StatusLengthRequired, CodeInvalidRequest, "Content-Length is required")
	}
	if r.ContentLength > int64(h.opts.MaxBody) {
		return h.bodyTooLarge()
	}
	return nil
}

func notAcceptable(types string) *Refusal {
	return refuse(http.StatusNotAcceptable, CodeInvalidRequest, "Accept must list "+types)
}

func (h *HTTPHandler) bodyTooLarge() *Refusal {
	return refuse(http.StatusRequestEntityTooLarge, CodeInvalidRequest, "Request body too large").
		withData(map[string]int{"max_bytes": h.opts.MaxBody})
}

func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "application/json" {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8")
}

// accepted is which kinds of answer a client can read. The specification wants
// it to list both; one that lists one gets that one.
type accepted struct{ json, stream bool }

func parseAccept(values []string) accepted {
	if len(values) == 0 || slices.Equal(values, acceptBoth) {
		return accepted{true, true}
	}
	var a accepted
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			kind, params, _ := strings.Cut(part, ";")
			if q := strings.ReplaceAll(params, " ", ""); q == "q=0" || strings.HasPrefix(q, "q=0.0") && strings.Trim(q[4:], "0.") == "" {
				continue
			}
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "application/json", "application/*":
				a.json = true
			case "text/event-stream", "text/*":
				a.stream = true
			case "*/*":
				a = accepted{true, true}
			}
		}
	}
	return a
}

// versionHeader returns the protocol revision of the headers, empty if there is
// none.
func (h *HTTPHandler) versionHeader(r *http.Request) (string, *Refusal) {
	switch values := r.Header[headerVersion]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", refuse(http.StatusBadRequest, CodeHeaderMismatch, "Header mismatch: more than one "+headerVersion+" header")
}

// firstRead is how much memory a request gets on the word of its headers alone,
// nextRead how much it gets when it has sent that.
const (
	firstRead = largeSize
	nextRead  = 4 << 20
)

// readBody reads the body within the limits of size, time and memory. The bytes
// belong to the request for good: handlers keep pieces of them. The caller gives
// their capacity back to the budget when the request is over.
func (h *HTTPHandler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *Refusal) {
	control := http.NewResponseController(w)
	// Not every ResponseWriter has deadlines; then the server's must do.
	control.SetReadDeadline(time.Now().Add(h.times.read))
	body, no := h.readLimited(w, r)
	// What is read from now on is only whether the client is still there.
	control.SetReadDeadline(time.Time{})
	return body, no
}

func (h *HTTPHandler) readLimited(w http.ResponseWriter, r *http.Request) ([]byte, *Refusal) {
	size := 512
	if r.ContentLength >= 0 {
		size = int(min(r.ContentLength, firstRead)) + 1 // one more byte finds the end
	}
	if h.budget.acquire(r.Context(), size) != nil {
		return nil, noRoom()
	}
	buf := make([]byte, 0, size)
	var large *reading // nil as long as it is small
	var no *Refusal
	for no == nil {
		if len(buf) == cap(buf) {
			size := min(max(2*cap(buf), int(min(r.ContentLength+1, nextRead))), h.opts.MaxBody+1)
			if h.budget.acquire(r.Context(), size-cap(buf)) != nil {
				no = noRoom()
				break
			}
			buf = append(make([]byte, 0, size), buf...)
			large = h.largeBody(w, large, size)
		}
		n, err := r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if large != nil && n > 0 {
			large.moves()
		}
		switch {
		case len(buf) > h.opts.MaxBody:
			no = h.bodyTooLarge()
		case err == io.EOF:
			h.budget.unlist(large.held())
			return buf, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			no = refuse(http.StatusRequestTimeout, CodeInvalidRequest, "Request body took too long").with("Connection", "close")
		case err != nil:
			no = refuse(http.StatusBadRequest, CodeParseError, "Request body could not be read")
		}
	}
	h.budget.unlist(large.held())
	h.budget.give(cap(buf))
	return nil, no
}

// largeBody makes a body that is being read one that can be given up, if it is
// large.
func (h *HTTPHandler) largeBody(w http.ResponseWriter, body *reading, size int) *reading {
	if body == nil && size > largeSize {
		body = &reading{control: http.NewResponseController(w)}
		body.of = body
	}
	if body != nil {
		h.budget.list(&body.holding, size)
	}
	return body
}

// A reading is a holding of bytes that are being read. It is given up by not
// waiting for the rest.
type reading struct {
	holding
	control *http.ResponseController
}

func (r *reading) giveUp() { r.control.SetReadDeadline(time.Unix(1, 0)) }

func (r *reading) held() *holding {
	if r == nil {
		return nil
	}
	return &r.holding
}

func overloaded() *Refusal {
	return refuse(http.StatusTooManyRequests, CodeOverloaded, "Too many requests at once").retryAfter(time.Second)
}
