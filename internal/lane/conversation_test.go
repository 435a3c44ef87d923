package lane

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// repertoire is what a handler may do, by path.
var repertoire = map[string]http.HandlerFunc{
	"/echo": func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s %d %v %q %v", r.Method, r.URL, r.Proto, r.Host, r.ContentLength, slices.Sorted(maps.Keys(r.Header)), body, err)
	},
	"/nothing": func(http.ResponseWriter, *http.Request) {},
	"/length": func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Length"] = []string{"5"}
		w.WriteHeader(201)
		w.Header().Set("Late", "yes")
		io.WriteString(w, "he")
		io.WriteString(w, "llo")
	},
	"/large": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100000")
		w.Write(make([]byte, 60000))
		w.Write(make([]byte, 40000))
	},
	"/chunks": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
		}
		w.Write(make([]byte, 20000))
	},
	"/growing": func(w http.ResponseWriter, r *http.Request) {
		for range 100 {
			io.WriteString(w, strings.Repeat("x", 99))
		}
	},
	"/flushed": func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush() },
	"/none":    func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) },
	"/same": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", "a")
		w.WriteHeader(304)
	},
	"/strange":   func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(599) },
	"/twice":     func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404); w.WriteHeader(200) },
	"/forbidden": func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusForbidden) },
	"/error": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(204)
		if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(err)
		}
	},
	"/short": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		io.WriteString(w, "he")
	},
	"/long": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2")
		io.WriteString(w, "he")
		if _, err := io.WriteString(w, "llo"); !errors.Is(err, http.ErrContentLength) {
			panic(err)
		}
	},
	"/closing": func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Connection", "close") },
	"/wrong": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "x")
		w.(http.Flusher).Flush()
		io.WriteString(w, "ok")
	},
	"/html": func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>") },
	"/encoded": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		io.WriteString(w, "<html>")
	},
	"/untyped": func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"], w.Header()["Date"] = nil, nil
		io.WriteString(w, "<html>")
	},
	"/splitting": func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-A"] = []string{"a\r\nX-Injected: 1", "\r\n b\n "}
		h["X-B: c\r\nX-Injected"] = []string{"2"}
		h[""] = []string{"3"}
		h.Set("Connection", "x\r\nX-Injected: 4")
		h.Del("Connection")
	},
	"/panic": func(w http.ResponseWriter, r *http.Request) { panic("on purpose") },
	"/abort": func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begun")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	},
	"/invalid": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(1) },
	"/early":   func(w http.ResponseWriter, r *http.Request) { r.Body.Close() },
	"/some": func(w http.ResponseWriter, r *http.Request) {
		io.ReadFull(r.Body, make([]byte, 3))
		io.WriteString(w, "some")
	},
}

// conversations are what clients send on one connection. Each is answered the
// same with the lane and without it.
func conversations() map[string]string {
	all := map[string]string{
		"pipelined":           post("/echo", "one") + post("/length", "two") + post("/echo", "three"),
		"another method":      post("/echo", "one") + request("GET /echo HTTP/1.1", "Host: a") + post("/echo", "two"),
		"delete":              request("DELETE /echo HTTP/1.1", "Host: a"),
		"no body":             post("/echo", "one") + request("POST /echo HTTP/1.1", "Host: a", "Content-Length: 0") + post("/echo", "two"),
		"chunked body":        post("/echo", "one") + request("POST /echo HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "3\r\nabc\r\n0\r\n\r\n",
		"smuggled":            request("POST /echo HTTP/1.1", "Host: a", "Content-Length: 4", "Transfer-Encoding: chunked") + "0\r\n\r\n" + post("/echo", "two"),
		"two lengths":         request("POST /echo HTTP/1.1", "Host: a", "Content-Length: 4", "Content-Length: 5") + "abcde",
		"empty lines":         post("/echo", "one") + "\r\n\r\n" + post("/echo", "two"),
		"too many lines":      post("/echo", "one") + "\r\n\r\n\r\n" + post("/echo", "two"),
		"leading empty line":  "\r\n" + post("/echo", "one"),
		"wants to close":      post("/echo", "one") + request("POST /echo HTTP/1.1", "Host: a", "Content-Length: 1", "Connection: close") + "x" + post("/echo", "three"),
		"old":                 request("POST /echo HTTP/1.0", "Host: a", "Content-Length: 1") + "x",
		"bare line feeds":     "POST /echo HTTP/1.1\nHost: a\nContent-Length: 1\n\nx",
		"no host":             post("/echo", "one") + request("POST /echo HTTP/1.1", "Content-Length: 1") + "x",
		"bad host":            request("POST /echo HTTP/1.1", "Host: a b", "Content-Length: 1") + "x",
		"query":               request("POST /echo?a=b HTTP/1.1", "Host: a", "Content-Length: 1") + "x",
		"escapes":             request("POST /ec%68o HTTP/1.1", "Host: a", "Content-Length: 1") + "x",
		"garbage":             post("/echo", "one") + "garbage\r\n\r\n",
		"half a head":         post("/echo", "one") + "POST /echo HTTP/1.1\r\nHost: a\r\nConte",
		"large body":          post("/echo", strings.Repeat("x", 100000)) + post("/echo", "two"),
		"body not read":       post("/nothing", strings.Repeat("x", 100000)) + post("/echo", "two"),
		"much of it not read": post("/nothing", strings.Repeat("x", 300000)),
		"large head":          request("POST /echo HTTP/1.1", "Host: a", "Content-Length: 1", "X: "+strings.Repeat("x", 10000)) + "x" + post("/echo", "two"),
		"too large head":      request("POST /echo HTTP/1.1", "Host: a", "Content-Length: 1", "X: "+strings.Repeat("x", 3<<20)) + "x",
		"unexpected":          request("POST /echo HTTP/1.1", "Host: a", "Content-Length: 1", "Expect: a miracle") + "x",
		"continue":            request("POST /echo HTTP/1.1", "Host: a", "Content-Length: 1", "Expect: 100-continue") + "x",
	}
	for path := range repertoire {
		all[path] = post(path, "the body") + post("/echo", "then")
	}
	return all
}

// hear sends a conversation, ends it, and renders what comes back.
func hear(t *testing.T, addr, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() {
		io.WriteString(conn, text) // an error shows in what comes back
		conn.(*net.TCPConn).CloseWrite()
	}()
	in, out := bufio.NewReader(conn), new(strings.Builder)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return out.String() + "end"
		}
		body, err := io.ReadAll(resp.Body)
		if date := resp.Header.Get("Date"); date != "" {
			if at, err := http.ParseTime(date); err != nil || time.Since(at).Abs() > time.Minute {
				t.Errorf("date %q", date)
			}
			resp.Header.Set("Date", "now")
		}
		fmt.Fprintf(out, "%s %s length %d %v close %v %q %q %v\n", resp.Proto, resp.Status, resp.ContentLength, resp.TransferEncoding, resp.Close, resp.Header, body, err)
	}
}

func TestConversations(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) { repertoire[r.URL.Path](w, r) }
	s := newSite(t, handler)
	without, book := settings(http.HandlerFunc(handler))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- without.Serve(l) }()
	for name, text := range conversations() {
		t.Run(name, func(t *testing.T) {
			ours, theirs := hear(t, s.addr, text), hear(t, l.Addr().String(), text)
			if ours != theirs {
				t.Errorf("with the lane\n%.1000s\nwithout\n%.1000s", ours, theirs)
			}
			if strings.Contains(ours, `"X-Injected"`) {
				t.Errorf("%s", ours)
			}
		})
	}
	without.Close()
	<-served
	s.server.Close()
	s.gone()
	for _, line := range []string{": on purpose\n", ": invalid WriteHeader code 1\n", "superfluous response.WriteHeader call", "invalid Content-Length of \"x\""} {
		if ours, theirs := strings.Count(s.log.String(), line), strings.Count(book.String(), line); ours != theirs || ours == 0 {
			t.Errorf("%q is logged %d times with the lane, %d times without:\n%s", line, ours, theirs, s.log)
		}
	}
	if strings.Contains(s.log.String(), "abort Handler") {
		t.Error(s.log)
	}
}
