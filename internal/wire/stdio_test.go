package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
)

// discard is a writer for conns that only read.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

// readAll reads a stream to its end and describes what came out of it.
func readAll(t *testing.T, r io.Reader, opts *StreamOptions) (got []string, end error) {
	t.Helper()
	c := NewStreamConn(r, discard{}, opts)
	defer c.Close()
	for {
		m, err := c.Read()
		if g, ok := errors.AsType[*Garbage](err); ok {
			got = append(got, fmt.Sprintf("garbage %d %.20s", g.Size, g.Text))
			continue
		}
		if err != nil {
			return got, err
		}
		got = append(got, m.Method)
	}
}

func note(method string) string { return `{"jsonrpc":"2.0","method":"` + method + `"}` }

func TestStreamRead(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n-len(note(""))) }
	for _, c := range []struct {
		name, input, want string
	}{
		{"empty", "", ""},
		{"lines", note("a") + "\n" + note("b") + "\n", "a,b"},
		{"no final newline", note("a") + "\n" + note("b"), "a,b"},
		{"crlf, blank lines, white space", "\r\n \t\r\n\n" + note("a") + "\r\n  " + note("b") + "  \r\n", "a,b"},
		{"byte order mark", "\uFEFF" + note("a") + "\n\uFEFF" + note("b") + "\n", "a,garbage 33 \uFEFF" + note("b")[:19]},
		{"garbage", "Listening...\n" + note("a") + "\n\x1b[31mwarn\x1b[0m\n{\"jsonrpc\":\n" + note("b") + "\n[]\n", "garbage 12 Listening...,a,garbage 13 \x1b[31mwarn\x1b[0m,garbage 11 {\"jsonrpc\":,b,garbage 2 []"},
		{"around the window", note(long(lineWindow-1)) + "\n" + note(long(lineWindow)) + "\n" + note(long(lineWindow+1)) + "\n" + note("a") + "\n",
			long(lineWindow-1) + "," + long(lineWindow) + "," + long(lineWindow+1) + ",a"},
		{"of many blocks", note("a") + "\n" + note(long(300_000)) + "\n" + note(long(70_000)) + "\n" + note("b") + "\n", "a," + long(300_000) + "," + long(70_000) + ",b"},
		{"at the limit", note(long(400_000)) + "\n" + note("a") + "\n", long(400_000) + ",a"},
		{"over the limit", note("a") + "\n" + note(long(400_001)) + "\n" + note("b") + "\n" + note(long(3_000_000)) + "\n" + note("c"),
			"a,garbage 400001 " + note("")[:20] + ",b,garbage 3000000 " + note("")[:20] + ",c"},
		{"over the limit to the end", note("a") + "\n" + note(long(500_000)), "a,garbage 500000 " + note("")[:20]},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := &StreamOptions{MaxMessage: 400_000}
			for name, r := range map[string]io.Reader{
				"whole":      strings.NewReader(c.input),
				"with error": iotest.DataErrReader(strings.NewReader(c.input)),
				"halves":     iotest.HalfReader(strings.NewReader(c.input)),
				"closer":     io.NopCloser(strings.NewReader(c.input)),
			} {
				got, err := readAll(t, r, opts)
				if strings.Join(got, ",") != c.want || err != io.EOF {
					t.Errorf("%s: got %.300q, %v", name, got, err)
				}
			}
			if len(c.input) < 1000 {
				if got, err := readAll(t, iotest.OneByteReader(strings.NewReader(c.input)), opts); strings.Join(got, ",") != c.want || err != io.EOF {
					t.Errorf("byte by byte: got %.300q, %v", got, err)
				}
			}
		})
	}
}

// A message over the limit that answers a request says which one, wherever its
// id is and wherever the line is cut on its way.
func TestStreamTooLongAnswer(t *testing.T) {
	for _, c := range []struct {
		start, end string
		want       ID
	}{
		{`{"jsonrpc":"2.0","id":7,"result":"`, `"}`, NumberID(7)},
		{`{"id": 7, "jsonrpc": "2.0", "error": {"message":"`, `"}}`, NumberID(7)},
		{`{"result":{"text":"`, `"},"jsonrpc":"2.0","id":123456789}`, NumberID(123456789)},
		{`{"jsonrpc":"2.0","result":{"text":"`, `"} , "id" : 7 } `, NumberID(7)},
		{`{"result":"`, `","id":7,"jsonrpc":"2.0"}`, NumberID(7)},
		{`{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"`, `"}}`, ID{}},
		{`{"jsonrpc":"2.0","method":"m","params":{"a":"`, `","id":7}`, ID{}},
		{`{"jsonrpc":"2.0","id":"7","result":"`, `"}`, StringID("7")},
		{`{"jsonrpc":"2.0","result":{"a":"`, `","id":7}}`, ID{}},
		{`"`, `","id":7}`, ID{}},
	} {
		const limit = 200_000
		for _, size := range []int{limit + 1, limit + lineWindow/2, limit + 3*lineWindow, 2 * limit, 2*limit + 13} {
			line := c.start + strings.Repeat("x", size-len(c.start)-len(c.end)) + c.end
			conn := NewStreamConn(strings.NewReader(line+"\n"), discard{}, &StreamOptions{MaxMessage: limit})
			_, err := conn.Read()
			conn.Close()
			if g, ok := errors.AsType[*Garbage](err); !ok || g.Answers != c.want || g.Size != size {
				t.Errorf("%s…%s of %d bytes: %+v", c.start, c.end, size, err)
			}
		}
	}
}

func TestStreamReadBatch(t *testing.T) {
	input := "[" + note("a") + ", " + note("b") + "]\n" + note("c") + "\n[" + note("d") + ",1]\n[]\n"
	got, err := readAll(t, strings.NewReader(input), &StreamOptions{MaxBatch: 2})
	if want := "[a b c garbage 34 [{\"jsonrpc\":\"2.0\",\"m garbage 2 []]"; fmt.Sprint(got) != want || err != io.EOF {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestStreamReadError(t *testing.T) {
	broken := errors.New("broken")
	got, err := readAll(t, io.MultiReader(strings.NewReader(note("a")+"\n"+note("b")), iotest.ErrReader(broken)), nil)
	if fmt.Sprint(got) != "[a b]" || err != broken {
		t.Errorf("got %v, %v", got, err)
	}
}

// Row 8 of the fault matrix: a little noise is skipped, a flood ends the conn.
func TestStreamNoise(t *testing.T) {
	for _, c := range []struct {
		name  string
		noise string
		ends  bool
	}{
		{"100 lines of a stranger", strings.Repeat("log\n", 100), false},
		{"101 lines of a stranger", strings.Repeat("log\n", 101), true},
		{"1000 lines", note("b") + "\n" + strings.Repeat("log\n", 1000), false},
		{"1001 lines", note("b") + "\n" + strings.Repeat("log\n", 1001), true},
		{"1 MiB", strings.Repeat("x", 1<<20) + "\n", false},
		{"more than 1 MiB", strings.Repeat("x", 1<<20) + "\nx\n", true},
	} {
		got, err := readAll(t, strings.NewReader(c.noise+note("a")+"\n"), nil)
		survived := len(got) > 0 && got[len(got)-1] == "a"
		if survived == c.ends || errors.Is(err, ErrNoise) != c.ends {
			t.Errorf("%s: ended with %v after %d", c.name, err, len(got))
		}
	}
}

func TestStreamLineWithoutEnd(t *testing.T) {
	got, err := readAll(t, zeros{}, &StreamOptions{MaxMessage: 1 << 20})
	if len(got) != 1 || !errors.Is(err, ErrNoise) {
		t.Errorf("got %v, %v", got, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func TestStreamWrite(t *testing.T) {
	r, w := io.Pipe()
	c := NewStreamConn(strings.NewReader(""), w, nil)
	var out bytes.Buffer
	var copying sync.WaitGroup
	copying.Go(func() { io.Copy(&out, r) })
	var writing sync.WaitGroup
	const writers, messages = 8, 50
	big := strings.Repeat("y", 100_000)
	for i := range writers {
		writing.Go(func() {
			for j := range messages {
				params := json.RawMessage(fmt.Sprintf("{\n\"i\":%d,\r\n\"j\":%d,\"s\":\"%s\\n\"\n}", i, j, big[:j*j*20]))
				if err := c.Write(context.Background(), Message{Method: "m", Params: params}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	copying.Wait()
	next := make([]int, writers)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for _, line := range lines {
		m, err := Parse([]byte(line), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		var params struct {
			I, J int
			S    string
		}
		if err := json.Unmarshal(m.Params, &params); err != nil {
			t.Fatal(err)
		}
		if params.J != next[params.I] || params.S != big[:params.J*params.J*20]+"\n" {
			t.Fatalf("writer %d: got message %d, want %d", params.I, params.J, next[params.I])
		}
		next[params.I]++
	}
	if len(lines) != writers*messages {
		t.Errorf("%d lines", len(lines))
	}
	if err := c.Write(context.Background(), Message{Method: "m"}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// FuzzLines compares the reader of lines with the obvious way to split a text.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), 3, uint16(2))
	f.Add(bytes.Repeat([]byte("0123456789\n"), 4000), 100, uint16(9))
	f.Add(append(bytes.Repeat([]byte("x"), lineWindow), "\ny\n"...), 1<<20, uint16(5000))
	f.Add(append(bytes.Repeat([]byte("x"), 3*lineWindow), "\ny"...), 2*lineWindow, uint16(65535))
	f.Fuzz(func(t *testing.T, text []byte, limit int, step uint16) {
		if limit < len(text)/16+1 || limit > 1<<30 {
			return // a line without end has a test of its own
		}
		l := newLineReader(&stepReader{text, int(step) + 1}, limit)
		want := bytes.Split(text, []byte("\n"))
		if last := len(want) - 1; len(want[last]) == 0 {
			want = want[:last]
		}
		for _, w := range want {
			line, size, err := l.next()
			tooLong := len(w) > limit
			if tooLong {
				w = w[:min(len(w), garbageShown)]
			}
			if !bytes.Equal(line, w) || (err == ErrTooLong) != tooLong || !tooLong && (err != nil || size != len(w)) {
				t.Fatalf("got %d bytes of %d, %v; want %d", len(line), size, err, len(w))
			}
		}
		if _, _, err := l.next(); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	})
}

// stepReader returns so many bytes at a time.
type stepReader struct {
	text []byte
	step int
}

func (r *stepReader) Read(b []byte) (int, error) {
	if len(r.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.text[:min(len(r.text), r.step)])
	r.text = r.text[n:]
	return n, nil
}

// A Read that nothing can interrupt, as on a blocking standard input, does not
// hold up Close.
func TestStreamUninterruptibleReader(t *testing.T) {
	release, released := make(chan struct{}), make(chan struct{})
	c := NewStreamConn(readFunc(func([]byte) (int, error) {
		<-release
		close(released)
		return 0, io.EOF
	}), discard{}, nil)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Read()
		ended <- err
	}()
	c.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	close(release)
	<-released
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// Nor does a Write that nothing can interrupt.
func TestStreamUninterruptibleWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stuckWriter{begun: make(chan struct{}), release: make(chan struct{})}
		c := NewStreamConn(strings.NewReader(""), w, nil)
		if err := c.Write(t.Context(), Message{Method: "m"}); err != nil {
			t.Error(err)
		}
		<-w.begun
		c.Close()
		close(w.release)
	})
}

type stuckWriter struct{ begun, release chan struct{} }

func (w *stuckWriter) Write(b []byte) (int, error) {
	close(w.begun)
	<-w.release
	return len(b), nil
}

func (w *stuckWriter) Close() error { return nil }

// The queue is bounded in messages and bytes, but a message that is larger than
// the whole queue passes when it is alone.
func TestStreamQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		c := NewStreamConn(strings.NewReader(""), w, nil)
		large := Message{Method: "large", Params: json.RawMessage(`"` + strings.Repeat("x", 2*maxQueuedBytes) + `"`)}
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		write := func(m Message, want error) {
			t.Helper()
			if err := c.Write(impatient, m); err != want {
				t.Errorf("%s: %v", m.Method, err)
			}
		}
		write(large, nil)
		synctest.Wait() // until the writer has taken it
		for range maxQueuedLines {
			write(Message{Method: "small"}, nil)
		}
		write(Message{Method: "too many"}, context.Canceled)
		done := make(chan error, 1)
		go func() { done <- c.Write(t.Context(), large) }()
		go io.Copy(io.Discard, r)
		if err := <-done; err != nil {
			t.Error(err)
		}
		c.Close()
	})
}

// Whoever writes, and whether the pipe takes all of it at once, a part or
// nothing: every message arrives whole, and those of one sender in order.
func TestStreamConnWritesAtOnceOrLater(t *testing.T) {
	theirs, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	c := NewStreamConn(strings.NewReader(""), w, nil)
	const senders, each = 8, 200
	var wg sync.WaitGroup
	for sender := range senders {
		wg.Go(func() {
			filler := strings.Repeat("x", sender*sender*100) // the pipe is full soon
			for i := range each {
				params := fmt.Appendf(nil, `{"sender":%d,"i":%d,"filler":%q}`, sender, i, filler)
				if err := c.Write(t.Context(), Message{Method: "m", Params: params}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var next [senders]int
	lines := bufio.NewScanner(theirs)
	for range senders * each {
		if !lines.Scan() {
			t.Fatalf("after %v: %v", next, lines.Err())
		}
		var m struct {
			Params struct {
				Sender, I int
				Filler    string
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatalf("%v: %.100s", err, lines.Bytes())
		}
		if p := m.Params; p.I != next[p.Sender] || len(p.Filler) != p.Sender*p.Sender*100 {
			t.Fatalf("message %d of %d after %d", p.I, p.Sender, next[p.Sender]-1)
		}
		next[m.Params.Sender]++
	}
	wg.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Each direction of a conn can be ended by itself.
func TestStreamConnEndsInOneDirection(t *testing.T) {
	toUs, theirs := io.Pipe()
	fromUs, ours := io.Pipe()
	c := NewStreamConn(toUs, ours, nil)
	defer c.Close()
	other := NewStreamConn(fromUs, theirs, nil)
	defer other.Close()
	m := Message{Method: "x"}
	read := make(chan error, 1)
	go func() {
		_, err := c.Read()
		read <- err
	}()
	c.CloseRead()
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("reading ended with %v", err)
	}
	if err := c.Write(t.Context(), m); err != nil {
		t.Errorf("writing after the end of reading: %v", err)
	}
	if got, err := other.Read(); err != nil || got.Method != "x" {
		t.Errorf("the other side read %v, %v", got, err)
	}

	toUs, theirs = io.Pipe()
	fromUs, ours = io.Pipe()
	c = NewStreamConn(toUs, ours, nil)
	defer c.Close()
	other = NewStreamConn(fromUs, theirs, nil)
	defer other.Close()
	go func() {
		if err := c.Write(t.Context(), m); err != nil {
			t.Error(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Error(err)
		}
	}()
	if got, err := other.Read(); err != nil || got.Method != "x" {
		t.Errorf("the other side read %v, %v", got, err)
	}
	if _, err := other.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("the other side read %v", err)
	}
	if err := other.Write(t.Context(), m); err != nil {
		t.Error(err)
	}
	if got, err := c.Read(); err != nil || got.Method != "x" {
		t.Errorf("read %v, %v after the end of writing", got, err)
	}
}
