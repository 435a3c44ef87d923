package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

const watchPath = "/v1/watch"

// keepAlive is how often a stream without news shows that it is alive.
const keepAlive = 15 * time.Second

// Watch yields what the host knows now and after every change, until ctx or the
// host ends, or with an error when the connection to it does. Changes that come
// faster than they are taken are seen as one.
func (c *Client) Watch(ctx context.Context) iter.Seq2[patchbay.Snapshot, error] {
	return func(yield func(patchbay.Snapshot, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		err := c.watch(ctx, func(s patchbay.Snapshot) bool { return yield(s, nil) })
		if err != nil && ctx.Err() == nil {
			yield(patchbay.Snapshot{}, err)
		}
	}
}

// watch is Watch with a function that says whether to go on.
func (c *Client) watch(ctx context.Context, next func(patchbay.Snapshot) bool) error {
	req, err := newRequest(ctx, "GET", watchPath, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for r := bufio.NewReader(resp.Body); ; {
		line, err := readLine(r, maxResponse)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue // the end of an event, or a sign of life
		}
		var s patchbay.Snapshot
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		if !next(s) {
			return nil
		}
	}
}

// readLine reads a line of at most max bytes.
func readLine(r *bufio.Reader, max int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > max:
			return nil, fmt.Errorf("control: an event of more than %d bytes", max)
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

// watch sends a snapshot for each change, as an event each.
func watch(h *patchbay.Host, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	ctx, stop := context.WithCancel(r.Context())
	snapshots := make(chan patchbay.Snapshot)
	defer func() {
		stop()
		for range snapshots { // until its sender has ended
		}
	}()
	go func() {
		defer close(snapshots)
		for s := range h.Watch(ctx) {
			select {
			case snapshots <- s:
			case <-ctx.Done():
				return
			}
		}
	}()
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for {
		event := []byte(":\n\n")
		select {
		case s, ok := <-snapshots:
			if !ok {
				return
			}
			data, err := json.Marshal(s.WithoutTools())
			if err != nil {
				return // a snapshot always marshals
			}
			event = append(append([]byte("data: "), data...), "\n\n"...)
		case <-alive.C:
		}
		if _, err := w.Write(event); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
	}
}
