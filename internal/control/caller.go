package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

// Caller is for whom a daemon works: where, and with which environment. Whoever
// calls has its servers see these, not those of the process that happens to be
// the daemon. Values of an environment are secrets: they are in memory only.
type Caller struct {
	Dir     string
	Environ []string // as in os.Environ
}

// introduction is a Caller as it is sent. Neither paths nor values need be text.
type introduction struct {
	Dir     []byte `json:"dir"`
	Environ []byte `json:"environ"` // each with a zero byte behind it
}

// maxIntroduction bounds what is read of one: systems have programs be started
// with a few megabytes at most.
const maxIntroduction = 16 << 20

// reach makes a connection to the daemon at a socket, on which all requests are
// the caller's. The daemon is told who that is only if unlike does not say why it
// must not be used.
func reach(ctx context.Context, socket string, caller Caller, unlike func(Identity) string) (*net.UnixConn, error) {
	conn, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	ended := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = caller.introduce(conn, unlike)
	if !ended() || ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		err = silent(socket)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, conn.SetDeadline(time.Time{})
}

func (c Caller) introduce(conn net.Conn, unlike func(Identity) string) error {
	r := bufio.NewReader(conn) // the daemon says nothing that it is not asked
	var other Identity
	if err := exchange(conn, r, "GET", "/v1/hello", nil, &other); err != nil {
		return err
	}
	if reason := unlike(other); reason != "" {
		return errors.New(reason)
	}
	body, err := json.Marshal(introduction{[]byte(c.Dir), []byte(strings.Join(append(c.Environ[:len(c.Environ):len(c.Environ)], ""), "\x00"))})
	if err != nil {
		return err
	}
	return exchange(conn, r, "POST", callerPath, body, nil)
}

// exchange sends one request over a connection and reads its answer.
func exchange(conn net.Conn, r *bufio.Reader, method, path string, body []byte, result any) error {
	req, err := http.NewRequest(method, "http://"+hostName+path, bytes.NewReader(body))
	if err == nil {
		err = req.Write(conn)
	}
	if err != nil {
		return err
	}
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err == nil && result != nil {
		err = json.Unmarshal(answer, result)
	}
	return err
}

// callerPath is where a connection is told whose requests come over it.
const callerPath = "/v1/caller"

type callerKey struct{}

// withCaller is http.Server.ConnContext: a connection has one caller.
func withCaller(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, callerKey{}, new(atomic.Pointer[Caller]))
}

// callerOf returns whose connection a request came over.
func callerOf(ctx context.Context) (Caller, error) {
	of, _ := ctx.Value(callerKey{}).(*atomic.Pointer[Caller])
	if c := of.Load(); c != nil {
		return *c, nil
	}
	return Caller{}, &patchbay.Error{Kind: patchbay.KindConfigInvalid, Message: "The client has not said in which directory it works."}
}

// meet answers the introduction of a caller.
func meet(w http.ResponseWriter, r *http.Request) {
	var in introduction
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxIntroduction)).Decode(&in); err != nil {
		answer(w, nil, &patchbay.Error{Kind: patchbay.KindConfigInvalid, Message: fmt.Sprintf("The client's directory and environment cannot be read: %v", err)})
		return
	}
	c := &Caller{Dir: string(in.Dir), Environ: []string{}} // nil would mean the daemon's own
	for assignment := range strings.SplitSeq(string(in.Environ), "\x00") {
		if assignment != "" {
			c.Environ = append(c.Environ, assignment)
		}
	}
	of, _ := r.Context().Value(callerKey{}).(*atomic.Pointer[Caller])
	of.Store(c)
	answer(w, struct{}{}, nil)
}
