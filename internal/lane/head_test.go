package lane

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"
)

// request writes the head of a request, a line for each argument.
func request(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }

var plainHeads = []string{
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1"),
	request("POST /mcp HTTP/1.1", "Host: localhost:7331", "User-Agent: Go-http-client/1.1", "Content-Length: 113", "Accept: application/json, text/event-stream",
		"Authorization: Bearer pbgw_x", "Content-Type: application/json", "Mcp-Protocol-Version: 2025-11-25", "Mcp-Session-Id: ABC", "Accept-Encoding: gzip"),
	request("POST /mcp/a.b-c_d~e/ HTTP/1.1", "host:[::1]:80", "content-length:\t999999999", "CONNECTION: Keep-Alive", "x-empty:", "X-Two: 1", "x-two: \t 2 \t", "cookie: a=b; c=d"),
}

var otherHeads = []string{
	"GET / HTTP/1.1\r\n",
	"\r\n",
	"POST * HTTP/1.1\r\n",
	"POST http://a/ HTTP/1.1\r\n",
	"post / HTTP/1.1\r\n",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 1\n\n",
	request("POST / HTTP/1.1", "Host: a\nX: b", "Content-Length: 1"),
	request("POST / HTTP/1.0", "Host: a", "Content-Length: 1"),
	request("POST / HTTP/1.1 ", "Host: a", "Content-Length: 1"),
	request("POST /  HTTP/1.1", "Host: a", "Content-Length: 1"),
	request("POST /?a HTTP/1.1", "Host: a", "Content-Length: 1"),
	request("POST /#a HTTP/1.1", "Host: a", "Content-Length: 1"),
	request("POST /%61 HTTP/1.1", "Host: a", "Content-Length: 1"),
	request("POST //a HTTP/1.1", "Host: a", "Content-Length: 1"),
	request("POST /a// HTTP/1.1", "Host: a", "Content-Length: 1"),
	request("POST /a/../b HTTP/1.1", "Host: a", "Content-Length: 1"),
	request("POST /a/. HTTP/1.1", "Host: a", "Content-Length: 1"),
	request("POST /é HTTP/1.1", "Host: a", "Content-Length: 1"),
	request("POST / HTTP/1.1", "Content-Length: 1"),
	request("POST / HTTP/1.1", "Host:", "Content-Length: 1"),
	request("POST / HTTP/1.1", "Host: a", "Host: a", "Content-Length: 1"),
	request("POST / HTTP/1.1", "Host: a/b", "Content-Length: 1"),
	request("POST / HTTP/1.1", "Host: a@b", "Content-Length: 1"),
	request("POST / HTTP/1.1", "Host: a"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 0"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 01"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: +1"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: -1"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1, 1"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1 "),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1000000000"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "Content-Length: 1"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "Transfer-Encoding: chunked"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "transfer-encoding: identity"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "Expect: 100-continue"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "Upgrade: h2c"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "Trailer: X"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "TE: trailers"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "Pragma: no-cache"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "Connection: close"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "Connection: keep-alive, close"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "X: a", " b"),
	request("POST / HTTP/1.1", " Host: a", "Content-Length: 1"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length : 1"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "X"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", ": x"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "X: a\x00b"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "X: a\rb"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "X: \x80"),
	request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", strings.Repeat("X: y\r\n", maxHeaders)+"Z: 1"),
}

func TestPlainHeads(t *testing.T) {
	for _, text := range plainHeads {
		if k := new(head).read([]byte(text)); k != plain {
			t.Errorf("not plain: %q", text)
		}
		for n := range len(text) {
			if k := new(head).read([]byte(text[:n])); k != partial {
				t.Errorf("%q is %d", text[:n], k)
			}
		}
	}
	for _, text := range otherHeads {
		if k := new(head).read([]byte(text)); k != other {
			t.Errorf("%d: %q", k, text)
		}
	}
}

// Whatever is plain, net/http reads as the same request, and leaves the same
// rest; and it does so whatever head was read before.
func FuzzHead(f *testing.F) {
	for i, text := range plainHeads {
		f.Add([]byte(text), []byte(text+"body"))
		f.Add([]byte(plainHeads[0]), []byte(text+"b"))
		f.Add([]byte(strings.Replace(text, "ength: 1", "ength: 2", 1)), []byte(text+otherHeads[i]))
	}
	for _, text := range otherHeads {
		f.Add([]byte(plainHeads[0]), []byte(text+"body"))
	}
	f.Fuzz(func(t *testing.T, before, data []byte) {
		var h head
		h.read(before)
		given := maps.Clone(h.header)
		k := h.read(data)
		var fresh head
		if fresh.read(data) != k {
			t.Fatalf("%d after %q, or else %d", k, before, fresh.read(data))
		}
		if k != plain {
			return
		}
		if old := new(head); old.read(before) == plain && !reflect.DeepEqual(old.header, given) {
			t.Errorf("a header that was given away has changed")
		}
		compare(t, &h, data)
		compare(t, &fresh, data)
	})
}

// compare compares a plain head with what net/http makes of it.
func compare(t *testing.T, h *head, data []byte) {
	t.Helper()
	from := bufio.NewReaderSize(bytes.NewReader(data), len(data)+16)
	r, err := http.ReadRequest(from)
	if err != nil {
		t.Fatalf("net/http refuses it: %v", err)
	}
	if r.Method != "POST" || r.Proto != "HTTP/1.1" || r.Close || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 {
		t.Errorf("%s %s close %v, %v, %v", r.Method, r.Proto, r.Close, r.TransferEncoding, r.Trailer)
	}
	if u := *r.URL; u.Path != h.path || u.String() != h.path || r.RequestURI != h.path {
		t.Errorf("path %q, %q", h.path, r.RequestURI)
	}
	if r.Host != h.host || !httpguts.ValidHostHeader(h.host) {
		t.Errorf("host %q, %q", h.host, r.Host)
	}
	if r.ContentLength != h.length {
		t.Errorf("length %d, %d", h.length, r.ContentLength)
	}
	if !reflect.DeepEqual(r.Header, h.header) {
		t.Errorf("headers\n%q\n%q", h.header, r.Header)
	}
	for name, values := range h.header {
		for _, value := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
				t.Errorf("%q: %q", name, value)
			}
		}
	}
	theirs, _ := io.ReadAll(r.Body) // it may be cut short
	rest, _ := io.ReadAll(from)
	ours := data[h.size:]
	body := ours[:min(int64(len(ours)), h.length)]
	if !bytes.Equal(theirs, body) || !bytes.Equal(rest, ours[len(body):]) {
		t.Errorf("body %q, rest %q; %q, %q", body, ours[len(body):], theirs, rest)
	}
}

// A client that sends the same head again costs nothing, and one that differs in
// the length only a copy of the map.
func TestSameHeadAgain(t *testing.T) {
	first := []byte(plainHeads[1])
	longer := bytes.Replace(first, []byte("113"), []byte("1130"), 1)
	var h head
	if h.read(first) != plain {
		t.Fatal("not plain")
	}
	given := h.header
	if n := testing.AllocsPerRun(10, func() { h.read(first) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if h.read(longer) != plain || h.length != 1130 || h.size != len(longer) || h.header.Get("Content-Length") != "1130" {
		t.Errorf("%+v", h)
	}
	if given.Get("Content-Length") != "113" {
		t.Error("the header of the first has changed")
	}
}
