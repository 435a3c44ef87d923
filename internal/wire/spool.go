package wire

import (
	"io"
	"sync"
)

const blockSize = 64 << 10

type block [blockSize]byte

// blockPool lends blocks to spools. The zero value is ready to use.
type blockPool struct{ free sync.Pool }

func (p *blockPool) get() *block {
	if b, ok := p.free.Get().(*block); ok {
		return b
	}
	return new(block)
}

func (p *blockPool) put(b *block) { p.free.Put(b) }

// spool collects bytes whose number is not known beforehand in borrowed blocks
// and hands them out as one slice of exactly their length, so that a message
// costs one allocation of its own size however it arrives.
type spool struct {
	pool   *blockPool
	limit  int
	blocks []*block
	size   int
}

// tail is the free room of the last block.
func (s *spool) tail() []byte {
	used := s.size - (len(s.blocks)-1)*blockSize
	if len(s.blocks) == 0 || used == blockSize {
		s.blocks = append(s.blocks, s.pool.get())
		used = 0
	}
	return s.blocks[len(s.blocks)-1][used:]
}

// write adds p. ErrTooLong means that it would be more than the limit.
func (s *spool) write(p []byte) error {
	if len(p) > s.limit-s.size {
		return ErrTooLong
	}
	for len(p) > 0 {
		n := copy(s.tail(), p)
		s.size += n
		p = p[n:]
	}
	return nil
}

// readFrom reads src to its end.
func (s *spool) readFrom(src io.Reader) error {
	for {
		n, err := src.Read(s.tail())
		if s.size += n; s.size > s.limit {
			return ErrTooLong
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take returns what was collected and empties the spool.
func (s *spool) take() []byte {
	out := make([]byte, 0, s.size)
	for _, b := range s.blocks {
		out = append(out, b[:min(blockSize, s.size-len(out))]...)
	}
	s.clear()
	return out
}

// clear gives the blocks back, all but the first, which the next message needs.
func (s *spool) clear() { s.keep(1) }

// release gives all blocks back.
func (s *spool) release() { s.keep(0) }

func (s *spool) keep(n int) {
	for len(s.blocks) > n {
		last := len(s.blocks) - 1
		s.pool.put(s.blocks[last])
		s.blocks[last] = nil
		s.blocks = s.blocks[:last]
	}
	s.size = 0
}
