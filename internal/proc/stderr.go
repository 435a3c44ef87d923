package proc

import (
	"bytes"
	"sync"
)

// ringSize is how much of a child's standard error is kept.
const ringSize = 1 << 20

// ring keeps the last ringSize bytes written to it, and takes memory only for
// what it keeps. It is safe for concurrent use.
type ring struct {
	mu   sync.Mutex
	kept []byte
	next int // where the oldest byte is and the next one goes; 0 until kept is full
}

func (r *ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(p)
	fits := min(n, ringSize-len(r.kept))
	r.kept = append(r.kept, p[:fits]...)
	for p = p[fits:]; len(p) > 0; {
		done := copy(r.kept[r.next:], p)
		r.next = (r.next + done) % ringSize
		p = p[done:]
	}
	return n, nil
}

// bytes returns a copy of what is kept, oldest first.
func (r *ring) bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(bytes.Clone(r.kept[r.next:]), r.kept[:r.next]...)
}

// lastLines returns the end of text from the nth last line on. A line break at
// the very end begins no line.
func lastLines(text []byte, n int) []byte {
	if n <= 0 {
		return nil
	}
	end := len(bytes.TrimSuffix(text, []byte("\n")))
	for ; n > 0; n-- {
		end = bytes.LastIndexByte(text[:end], '\n')
		if end < 0 {
			return text
		}
	}
	return text[end+1:]
}
