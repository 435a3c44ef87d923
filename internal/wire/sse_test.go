package wire

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// received is everything a reader learns from one stream.
type received struct {
	Events []string // name|data
	LastID string
	Retry  time.Duration
	Err    string
}

func readStream(src io.Reader, limit int) received {
	r := newSSEReader(src, limit, new(blockPool))
	var s received
	for {
		e, err := r.next()
		if err != nil {
			s.LastID, s.Retry, s.Err = r.lastID, r.retry, err.Error()
			return s
		}
		s.Events = append(s.Events, e.Name+"|"+string(e.Data))
	}
}

// referenceStream reads a whole stream the obvious way.
func referenceStream(text string, limit int) received {
	s := received{Err: io.EOF.Error()}
	text = strings.TrimPrefix(text, "\xef\xbb\xbf")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	var name, id string
	var data []string
	hasID := false
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			if hasID {
				s.LastID = id
			}
			if data != nil {
				s.Events = append(s.Events, name+"|"+strings.Join(data, "\n"))
			}
			name, data, hasID = "", nil, false
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value[:min(len(value), maxEventName)]
			if name == "message" {
				name = ""
			}
		case "data":
			if data = append(data, value); len(strings.Join(data, "\n")) > limit {
				s.Err = ErrTooLong.Error()
				return s
			}
		case "id":
			controls := strings.ContainsFunc(value, func(c rune) bool { return c < 0x20 && c != '\t' || c == 0x7f })
			if !controls && len(value) <= maxEventID {
				id, hasID = value, true
			}
		case "retry":
			if value == "" || strings.Trim(value, "0123456789") != "" {
				continue
			}
			ms, err := strconv.Atoi(value)
			if err != nil || ms > int(maxRetry.Milliseconds()) {
				ms = int(maxRetry.Milliseconds())
			}
			if s.Retry = time.Duration(ms) * time.Millisecond; s.Retry < minRetry {
				s.Retry = defaultRetry
			}
		}
	}
	return s
}

func TestSSEReader(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 3*blockSize/16)
	tests := []struct {
		name, text string
		want       received
	}{
		{"empty", "", received{}},
		{"one", "data: x\n\n", received{Events: []string{"|x"}}},
		{"message is the default name", "event: message\ndata: x\n\n", received{Events: []string{"|x"}}},
		{"name", "event: endpoint\ndata: /m?s=1\n\n", received{Events: []string{"endpoint|/m?s=1"}}},
		{"name does not stick", "event: a\ndata: 1\n\ndata: 2\n\n", received{Events: []string{"a|1", "|2"}}},
		{"several lines", "data: a\ndata\ndata:b\n\n", received{Events: []string{"|a\n\nb"}}},
		{"one space only", "data:  x \n\n", received{Events: []string{"| x "}}},
		{"line ends mixed", "data: a\r\ndata: b\rdata: c\n\r\ndata: d\r\r", received{Events: []string{"|a\nb\nc", "|d"}}},
		{"byte order mark", "\xef\xbb\xbfdata: x\n\n", received{Events: []string{"|x"}}},
		{"a second one is data", "\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", received{}},
		{"comments", ": ping\n\n:\ndata: x\n:data: y\n\n", received{Events: []string{"|x"}}},
		{"unknown fields", "foo: bar\nDATA: no\ndatax: no\n data: no\ndata: x\n\n", received{Events: []string{"|x"}}},
		{"incomplete event is dropped", "data: x\n\nid: 7\ndata: y\n", received{Events: []string{"|x"}}},
		{"priming event", "id: 1\nretry: 500\ndata:\n\n", received{Events: []string{"|"}, LastID: "1", Retry: 500 * time.Millisecond}},
		{"id without data", "id: 1\n\ndata: x\n\n", received{Events: []string{"|x"}, LastID: "1"}},
		{"id is reset by an empty one", "id: 1\ndata: x\n\nid\ndata: y\n\n", received{Events: []string{"|x", "|y"}}},
		{"id with NUL is ignored", "id: 1\n\nid: 2\x003\ndata: x\n\n", received{Events: []string{"|x"}, LastID: "1"}},
		{"id too long is ignored", "id: 1\n\nid: " + long + "\ndata: x\n\n", received{Events: []string{"|x"}, LastID: "1"}},
		{"retry 0", "retry: 0\n\n", received{Retry: time.Second}},
		{"retry endless", "retry: 99999999999999999999999999\n\n", received{Retry: time.Minute}},
		{"retry not a number", "retry: 5s\nretry: -1\nretry:\n\n", received{}},
		{"long", "data: " + long + "\ndata: " + long + "\n\n", received{Events: []string{"|" + long + "\n" + long}}},
		{"long comment", ":" + long + "\ndata: x\n\n", received{Events: []string{"|x"}}},
		{"long nonsense", long + "data: y\ndata: x\n\n", received{Events: []string{"|x"}}},
		{"line as long as the window", "data: " + long[:sseWindow-6] + "\n\n", received{Events: []string{"|" + long[:sseWindow-6]}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Err = io.EOF.Error()
			for name, src := range map[string]io.Reader{
				"whole":           strings.NewReader(tt.text),
				"byte by byte":    iotest.OneByteReader(strings.NewReader(tt.text)),
				"error with data": iotest.DataErrReader(strings.NewReader(tt.text)),
			} {
				if diff := cmp.Diff(tt.want, readStream(src, 1<<20)); diff != "" {
					t.Errorf("%s: (-want +got)\n%s", name, diff)
				}
			}
		})
	}
}

// An event must be delivered when its blank line has arrived, although a CR at
// the end might still be followed by its LF.
func TestSSEReaderDoesNotWaitForMore(t *testing.T) {
	src, server := io.Pipe()
	r := newSSEReader(src, 1<<10, new(blockPool))
	go func() {
		io.WriteString(server, "data: 1\r\r")
		io.WriteString(server, "\ndata: 2\r\n\r")
		server.CloseWithError(errors.New("reset"))
	}()
	for _, want := range []string{"1", "2"} {
		if e, err := r.next(); err != nil || string(e.Data) != want {
			t.Fatalf("got %q, %v; want %q", e.Data, err, want)
		}
	}
	if _, err := r.next(); err == nil || err.Error() != "reset" {
		t.Errorf("err = %v, want the stream's", err)
	}
}

// endless is a stream that never ends and whose event never does.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return copy(p, bytes.Repeat([]byte("x"), len(p))), nil
}

func TestSSEReaderStopsAtTheLimit(t *testing.T) {
	const limit = 1 << 20
	for _, start := range []string{"data: ", "data: 1\ndata:"} {
		src := new(endless)
		r := newSSEReader(io.MultiReader(strings.NewReader(start), src), limit, new(blockPool))
		if _, err := r.next(); !errors.Is(err, ErrTooLong) {
			t.Errorf("err = %v", err)
		}
		if src.read > limit+2*sseWindow {
			t.Errorf("%d bytes read for a limit of %d", src.read, limit)
		}
	}
}

// Bytes of one stream must not turn up in the next that uses the same reader.
func TestSSEReaderReset(t *testing.T) {
	r := newSSEReader(strings.NewReader("id: 1\nretry: 200\ndata: x\n\nevent: n\ndata: half"), 1<<10, new(blockPool))
	for range 2 {
		r.next()
	}
	r.reset(strings.NewReader("data: y\n\n"))
	e, err := r.next()
	if err != nil || e.Name != "" || string(e.Data) != "y" || r.lastID != "" || r.retry != 0 {
		t.Errorf("got %+v, %v, id %q, retry %v", e, err, r.lastID, r.retry)
	}
}

func TestSSEReaderAllocatesTheEventOnce(t *testing.T) {
	const size = 1 << 20
	text := "data: " + strings.Repeat("x", size) + "\n\n"
	r := newSSEReader(nil, size, new(blockPool))
	checkPayloadBytes(t, size, bytesPerRun(func() {
		r.reset(strings.NewReader(text))
		if e, err := r.next(); err != nil || len(e.Data) != size {
			t.Fatal(err)
		}
	}))
}

func FuzzSSEReader(f *testing.F) {
	for _, s := range []string{
		"data: x\n\n", "\xef\xbb\xbfid: 1\r\ndata: a\rdata: b\n\r\n", "event: e\nretry: 10\ndata\n\n", ":c\n\n\n", "id: a\x00b\ndata:\n\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const limit = 64
		want := referenceStream(text, limit)
		for name, src := range map[string]io.Reader{
			"whole":        strings.NewReader(text),
			"byte by byte": iotest.OneByteReader(strings.NewReader(text)),
		} {
			if diff := cmp.Diff(want, readStream(src, limit)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", name, diff)
			}
		}
	})
}
