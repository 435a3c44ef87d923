package wire

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Refusal is the answer to an HTTP request that is turned away: its status, and
// a JSON-RPC error as its body. It is also an error, so that the Principal of
// HTTPOptions can return one and say, for example, how to authenticate.
type Refusal struct {
	Status int
	Header http.Header // sent along; may be nil
	ID     ID          // of the request, if it was read
	Reason *Error
}

func refuse(status int, code int64, message string) *Refusal {
	return &Refusal{Status: status, Reason: &Error{Code: code, Message: message}}
}

func (no *Refusal) Error() string {
	return strconv.Itoa(no.Status) + " " + no.Reason.Message
}

// with adds one header.
func (no *Refusal) with(name, value string) *Refusal {
	if no.Header == nil {
		no.Header = http.Header{}
	}
	no.Header.Set(name, value)
	return no
}

// withData adds the data of the error, which must marshal.
func (no *Refusal) withData(data any) *Refusal {
	no.Reason.Data, _ = json.Marshal(data)
	return no
}

func (no *Refusal) retryAfter(d time.Duration) *Refusal {
	return no.with("Retry-After", strconv.Itoa(int((d+time.Second-1)/time.Second)))
}

func (no *Refusal) write(w http.ResponseWriter) {
	header := w.Header()
	for name, values := range no.Header {
		header[name] = values
	}
	switch no.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest:
		header["Connection"] = valueClose // who may not be here keeps no connection open
	}
	id := no.ID
	if id.IsZero() {
		id = NullID()
	}
	writeMessage(w, writeTimeout, no.Status, Message{ID: id, Error: no.Reason})
}

// Header values that many answers share; nobody changes them.
var (
	contentTypeJSON  = []string{"application/json"}
	contentTypeSSE   = []string{"text/event-stream"}
	valueNoStore     = []string{"no-store"}
	valueNoSniff     = []string{"nosniff"}
	valueNoBuffering = []string{"no"}
	valueZero        = []string{"0"}
	valueClose       = []string{"close"}
)

// setFixedHeaders sets what every answer carries: nothing here is for a cache,
// nor for a browser to guess about.
func setFixedHeaders(h http.Header) {
	h["Cache-Control"] = valueNoStore
	h["X-Content-Type-Options"] = valueNoSniff
}
