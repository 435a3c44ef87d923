package config

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
)

// shortValue is what a value may have to be left where it is in a long file.
const shortValue = 64

// condense returns a file that is longer than limit without the long values that
// do not lie on the way to a member: texts stand in their place, and whole puts the
// values back once the rest is edited. Any other file stays as it is. What is not
// to be edited is never parsed, and so cannot change.
func condense(src []byte, names []string, limit int) (short []byte, whole func([]byte) ([]byte, error), err error) {
	if len(src) <= limit || len(bytes.TrimSpace(bytes.TrimPrefix(src, utf8BOM))) == 0 {
		return src, func(out []byte) ([]byte, error) { return out, nil }, nil
	}
	if len(src) > MaxPartFile {
		return nil, nil, fmt.Errorf("the file is longer than %d MiB", MaxPartFile>>20)
	}
	var part Part
	for i := len(names) - 1; i >= 0; i-- {
		part = Part{names[i]: part}
	}
	var left [][]byte
	mark, done := []byte(`"`+rand.Text()), 0
	r := newPartReader(bytes.NewReader(src))
	r.skipped = func(from, to int) {
		if to-from > shortValue {
			short = append(append(short, src[done:from]...), mark...)
			short = append(strconv.AppendInt(short, int64(len(left)), 10), '"')
			left = append(left, src[from:to])
			done = to
		}
	}
	root, err := r.read(part)
	if err == nil {
		err = root.clearWay(names)
	}
	if err != nil {
		return nil, nil, err
	}
	whole = func(out []byte) ([]byte, error) {
		size := len(out)
		for _, v := range left {
			size += len(v)
		}
		full := make([]byte, 0, size)
		for i, v := range left {
			stand := append(strconv.AppendInt(bytes.Clone(mark), int64(i), 10), '"')
			before, after, ok := bytes.Cut(out, stand)
			if !ok {
				return nil, errors.New("a part of the file would be lost; nothing was changed")
			}
			full = append(append(full, before...), v...)
			out = after
		}
		return append(full, out...), nil
	}
	return append(short, src[done:]...), whole, nil
}

// clearWay returns why a member cannot be reached, with the line in the whole file.
func (n Node) clearWay(names []string) error {
	pointer := ""
	for _, name := range names {
		if n.Kind != Object {
			return fmt.Errorf("line %d: %s is %s, expected an object", n.Line, orRoot(pointer), n.Kind)
		}
		for _, m := range n.Members {
			if m.Name == name && m.Repeated {
				return fmt.Errorf("line %d: duplicate key %q; keep one of them", m.Line, name)
			}
		}
		next, ok := n.Get(name)
		if !ok || next.Kind == Null {
			return nil
		}
		n, pointer = next, PointerTo(pointer, name)
	}
	return nil
}
