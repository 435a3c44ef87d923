package control

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

// InProcess returns a client of a host in the same process. Requests pass
// through the very handler a socket would serve.
func InProcess(h *patchbay.Host) *Client {
	return &Client{transport: memory{Handler(h)}}
}

// farewell is how long a handler may take to answer a request that was given up.
const farewell = 5 * time.Second

// memory carries requests to a handler without a network.
type memory struct{ handler http.Handler }

func (m memory) RoundTrip(r *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	resp := make(chan *http.Response, 1)
	rw := &responseWriter{header: http.Header{}, body: w, send: func(status int, header http.Header) {
		resp <- &http.Response{StatusCode: status, Status: http.StatusText(status), Header: header, Body: body, Request: r}
	}}
	go func() {
		m.handler.ServeHTTP(rw, r)
		rw.WriteHeader(http.StatusOK) // in case nothing was written
		w.Close()
	}()
	select {
	case re := <-resp:
		return re, nil
	case <-r.Context().Done():
	}
	// The handler sees the same end, and what it has to say about it is more
	// than that. A server may have to be told, too.
	patience := time.NewTimer(farewell)
	defer patience.Stop()
	select {
	case re := <-resp:
		return re, nil
	case <-patience.C:
		body.Close() // ends the handler's next write
		return nil, context.Cause(r.Context())
	}
}

// responseWriter streams what a handler writes into a pipe.
type responseWriter struct {
	header http.Header
	body   *io.PipeWriter
	send   func(status int, header http.Header)
	sent   bool
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	if !w.sent {
		w.sent = true
		w.send(status, w.header.Clone())
	}
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// FlushError does nothing: what is written is read at once.
func (w *responseWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return nil
}

// EnableFullDuplex does nothing: a body is read whenever it is written.
func (w *responseWriter) EnableFullDuplex() error { return nil }
