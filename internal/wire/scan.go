package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// Limits bounds one message. The zero value means DefaultMaxMessage and
// DefaultMaxDepth.
type Limits struct {
	Size  int // bytes; 0 means DefaultMaxMessage
	Depth int // nesting of objects and arrays; 0 means DefaultMaxDepth, and in answers DefaultAnswerDepth
}

func (l Limits) size() int {
	if l.Size <= 0 {
		return DefaultMaxMessage
	}
	return min(l.Size, math.MaxInt32) // spans are 32 bits wide
}

func (l Limits) depth() int {
	if l.Depth <= 0 {
		return DefaultMaxDepth
	}
	return l.Depth
}

func (l Limits) answerDepth() int {
	if l.Depth <= 0 {
		return DefaultAnswerDepth
	}
	return l.Depth
}

func (l Limits) scanner(data []byte) scanner {
	return scanner{data: data, maxDepth: l.depth(), answerDepth: l.answerDepth()}
}

// Valid reports whether data is one JSON value by the rules of Parse: strict
// grammar, UTF-8 without lone surrogates, no member name twice in an object,
// depth and size within the limits. The error is a *ParseError.
func Valid(data []byte, lim Limits) error {
	if len(data) > lim.size() {
		return tooLarge(len(data))
	}
	s := lim.scanner(data)
	if s.end(s.value(s.space(0), 0)) < 0 {
		return s.parseError()
	}
	return nil
}

// validResult reports whether data may be the result of a response, by the rules
// of Parse. The error is a *ParseError.
func validResult(data []byte, lim Limits) error {
	if len(data) > lim.size() {
		return tooLarge(len(data))
	}
	s := lim.scanner(data)
	if s.end(s.answer(s.space(0))) < 0 {
		return s.parseError()
	}
	return nil
}

// A scanner checks JSON text in one pass and keeps nothing but the member names
// of the objects that are still open. Its methods take the index of the first
// byte to look at and return the index after the last, or -1 once a fault is
// noted. It is made to live on the stack.
type scanner struct {
	data        []byte
	maxDepth    int
	answerDepth int  // what it is inside of an answer
	loose       bool // inside of an answer
	fault       fault
	offset      int // of the fault

	place    place // of the value that is scanned next
	odd      odd   // what was found in places that are looked at more closely
	distinct bool  // no two names anywhere may differ only in their case

	// The names, innermost last, are in few until that is full, then in many.
	names   int
	few     [64]span
	many    []span
	decoded []byte // names that were written with escapes, without them
}

// A span is a piece of scanner.data, or of scanner.decoded when it lies beyond
// the end of data.
type span struct{ start, end uint32 }

// A fault is what can be wrong with JSON text.
type fault uint8

const (
	noFault fault = iota
	unexpectedEnd
	textAfterValue
	notAValue
	notAName
	noColon
	objectNotEnded
	arrayNotEnded
	duplicateName
	alikeNames
	tooDeep
	noDigit
	controlCharacter
	unknownEscape
	badHexadecimal
	loneSurrogate
	badUTF8
)

func (f fault) String() string {
	return [...]string{
		noFault:          "nothing wrong",
		unexpectedEnd:    "unexpected end of JSON",
		textAfterValue:   "unexpected text after the JSON value",
		notAValue:        "not a JSON value",
		notAName:         "expected a member name",
		noColon:          "expected a colon after the member name",
		objectNotEnded:   "expected a comma or the end of the object",
		arrayNotEnded:    "expected a comma or the end of the array",
		duplicateName:    "a member name occurs twice in an object",
		alikeNames:       "two member names of an object differ only in their case",
		tooDeep:          "nested too deeply",
		noDigit:          "expected a digit",
		controlCharacter: "control character in a string",
		unknownEscape:    "unknown escape in a string",
		badHexadecimal:   "expected four hexadecimal digits after \\u",
		loneSurrogate:    "lone surrogate in a string",
		badUTF8:          "invalid UTF-8 in a string",
	}[f]
}

// fail notes that something else was expected at i, or the rest of the text.
func (s *scanner) fail(i int, f fault) int {
	if i >= len(s.data) {
		f = unexpectedEnd
	}
	s.fault, s.offset = f, i
	return -1
}

func (s *scanner) parseError() *ParseError {
	return &ParseError{Code: CodeParseError, Offset: s.offset, Reason: s.fault.String()}
}

func (s *scanner) space(i int) int { return skipSpace(s.data, i) }

func (s *scanner) at(i int, c byte) bool { return i < len(s.data) && s.data[i] == c }

// end checks that only white space follows.
func (s *scanner) end(i int) int {
	if i < 0 {
		return -1
	}
	if i = s.space(i); i < len(s.data) {
		return s.fail(i, textAfterValue)
	}
	return i
}

func (s *scanner) value(i, depth int) int {
	if i >= len(s.data) {
		return s.fail(i, unexpectedEnd)
	}
	switch s.data[i] {
	case '"':
		return s.string(i)
	case '{':
		return s.object(i, depth+1, nil)
	case '[':
		s.place = elsewhere
		return s.array(i, depth+1)
	case 't':
		return s.literal(i, "true")
	case 'f':
		return s.literal(i, "false")
	case 'n':
		return s.literal(i, "null")
	default:
		return s.number(i)
	}
}

// answer scans the result or the error of a response. It is passed on as it is,
// so all that JSON allows may be in it; but a member that tells us what to do with
// it must not be there twice, because others may read the other one.
func (s *scanner) answer(i int) int {
	depth := s.maxDepth
	s.loose, s.maxDepth = true, s.answerDepth
	if s.at(i, '{') {
		i = s.object(i, 2, &envelope{inner: true})
	} else {
		i = s.value(i, 1)
	}
	s.loose, s.maxDepth = false, depth
	return i
}

// object scans the object at i. If env is not nil it is told where each member is.
func (s *scanner) object(i, depth int, env *envelope) int {
	if depth > s.maxDepth {
		return s.fail(i, tooDeep)
	}
	place := s.place
	s.place = elsewhere
	names, decoded := s.names, len(s.decoded)
	i = s.space(i + 1)
	if s.at(i, '}') {
		return i + 1
	}
	for {
		if !s.at(i, '"') {
			return s.fail(i, notAName)
		}
		nameStart := i + 1
		if i = s.string(i); i < 0 {
			return -1
		}
		var name []byte
		if !s.loose || env != nil {
			name = s.push(nameStart, i-1)
		}
		if i = s.space(i); !s.at(i, ':') {
			return s.fail(i, noColon)
		}
		start := s.space(i + 1)
		if place != elsewhere {
			if place.misspells(name) {
				s.odd.note(place)
			}
			s.place = place.inside(name)
		}
		if env != nil && env.isAnswer(name) {
			i = s.answer(start)
		} else {
			i = s.value(start, depth)
		}
		if i < 0 {
			return -1
		}
		s.place = elsewhere // which a value that is no object has left
		if env != nil && !env.member(name, span{uint32(start), uint32(i)}) {
			return s.fail(i, duplicateName)
		}
		i = s.space(i)
		switch {
		case s.at(i, ','):
			i = s.space(i + 1)
		case s.at(i, '}'):
			if !s.loose && !s.unique(names) {
				return s.fail(i, duplicateName)
			}
			if place != elsewhere && s.alike(names) {
				s.odd.note(place)
			}
			if s.distinct && (s.alike(names) || s.cut(names)) {
				return s.fail(i, alikeNames)
			}
			s.names, s.decoded = names, s.decoded[:decoded]
			return i + 1
		default:
			return s.fail(i, objectNotEnded)
		}
	}
}

func (s *scanner) array(i, depth int) int {
	if depth > s.maxDepth {
		return s.fail(i, tooDeep)
	}
	i = s.space(i + 1)
	if s.at(i, ']') {
		return i + 1
	}
	for {
		if i = s.value(i, depth); i < 0 {
			return -1
		}
		i = s.space(i)
		switch {
		case s.at(i, ','):
			i = s.space(i + 1)
		case s.at(i, ']'):
			return i + 1
		default:
			return s.fail(i, arrayNotEnded)
		}
	}
}

// push remembers the member name between the quotes and returns it decoded.
func (s *scanner) push(start, end int) []byte {
	name := s.data[start:end]
	if bytes.IndexByte(name, '\\') >= 0 {
		start = len(s.data) + len(s.decoded)
		s.decoded = appendUnescaped(s.decoded, name)
		end = len(s.data) + len(s.decoded)
		name = s.decoded[start-len(s.data):]
	}
	where := span{uint32(start), uint32(end)}
	switch {
	case s.names < len(s.few):
		s.few[s.names] = where
	case s.names == len(s.few):
		s.many = append(append(s.many[:0], s.few[:]...), where)
	default:
		s.many = append(s.many[:s.names], where)
	}
	s.names++
	return name
}

func (s *scanner) name(p span) []byte {
	if n := uint32(len(s.data)); p.start >= n {
		return s.decoded[p.start-n : p.end-n]
	}
	return s.data[p.start:p.end]
}

// open returns the names from base on, in any order.
func (s *scanner) open(base int) []span {
	if s.names > len(s.few) {
		return s.many[base:s.names]
	}
	return s.few[base:s.names]
}

// unique reports whether no two names from base on are the same. Small objects
// are compared pair by pair; large ones are sorted first, so that a hostile
// object of a hundred thousand members costs no more than its share.
func (s *scanner) unique(base int) bool {
	names := s.open(base)
	if len(names) > 16 {
		slices.SortFunc(names, func(a, b span) int { return bytes.Compare(s.name(a), s.name(b)) })
		for i := 1; i < len(names); i++ {
			if bytes.Equal(s.name(names[i-1]), s.name(names[i])) {
				return false
			}
		}
		return true
	}
	for i, a := range names {
		for _, b := range names[:i] {
			if a.end-a.start == b.end-b.start && bytes.Equal(s.name(a), s.name(b)) {
				return false
			}
		}
	}
	return true
}

func (s *scanner) literal(i int, want string) int {
	if len(s.data)-i < len(want) || string(s.data[i:i+len(want)]) != want {
		return s.fail(i, notAValue)
	}
	return i + len(want)
}

func (s *scanner) number(i int) int {
	start := i
	if s.at(i, '-') {
		i++
	}
	switch {
	case s.at(i, '0'):
		i++
	case i < len(s.data) && '1' <= s.data[i] && s.data[i] <= '9':
		i = s.digits(i)
	case i > start:
		return s.fail(i, noDigit)
	default:
		return s.fail(i, notAValue)
	}
	if s.at(i, '.') {
		first := i + 1
		if i = s.digits(first); i == first {
			return s.fail(i, noDigit)
		}
	}
	if s.at(i, 'e') || s.at(i, 'E') {
		i++
		if s.at(i, '+') || s.at(i, '-') {
			i++
		}
		first := i
		if i = s.digits(first); i == first {
			return s.fail(i, noDigit)
		}
	}
	return i
}

func (s *scanner) digits(i int) int {
	for i < len(s.data) && '0' <= s.data[i] && s.data[i] <= '9' {
		i++
	}
	return i
}

// Every byte of a word at once.
const (
	ones     = 0x0101010101010101
	highBits = 0x8080808080808080
)

// special finds, in a word of eight bytes, the first that means something in a
// string: a quote, a backslash or a control character. Its high bit is the lowest
// that is set.
func special(w uint64) uint64 {
	quote, slash := w^('"'*ones), w^('\\'*ones)
	return (((w - 0x20*ones) & ^w) | ((quote - ones) & ^quote) | ((slash - ones) & ^slash)) & highBits
}

// string scans the string whose opening quote is at i. It looks at eight bytes
// at a time and leaves the check of UTF-8 to the end, when it is known whether
// there is anything but ASCII.
func (s *scanner) string(i int) int {
	start := i + 1
	data, high := s.data, uint64(0)
	for i = start; ; {
		for len(data)-i >= 8 {
			w := binary.LittleEndian.Uint64(data[i:])
			if stop := special(w); stop != 0 {
				n := bits.TrailingZeros64(stop) &^ 7 // bits before the byte that stopped us
				high |= w & (1<<n - 1)
				i += n / 8
				break
			}
			high |= w
			i += 8
		}
		if i >= len(data) {
			return s.fail(i, unexpectedEnd)
		}
		switch c := data[i]; {
		case c == '"':
			if high&highBits != 0 && !utf8.Valid(data[start:i]) {
				return s.fail(start, badUTF8)
			}
			return i + 1
		case c == '\\':
			if i = s.escape(i + 1); i < 0 {
				return -1
			}
		case c < 0x20:
			return s.fail(i, controlCharacter)
		default: // the last seven bytes of the data
			high |= uint64(c)
			i++
		}
	}
}

// escape scans what follows a backslash.
func (s *scanner) escape(i int) int {
	if i >= len(s.data) {
		return s.fail(i, unexpectedEnd)
	}
	switch s.data[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		r := hex4(s.data, i+1)
		if r < 0 {
			return s.fail(i, badHexadecimal)
		}
		i += 5
		if !isSurrogate(r) {
			return i
		}
		if r < lowSurrogate && s.at(i, '\\') && s.at(i+1, 'u') {
			if low := hex4(s.data, i+2); lowSurrogate <= low && isSurrogate(low) {
				return i + 6
			}
		}
		if s.loose {
			return i
		}
		return s.fail(i, loneSurrogate)
	default:
		return s.fail(i, unknownEscape)
	}
}

const lowSurrogate = 0xDC00

func isSurrogate(r rune) bool { return 0xD800 <= r && r < 0xE000 }

// hex4 returns the value of four hexadecimal digits, or -1.
func hex4(data []byte, i int) rune {
	if len(data)-i < 4 {
		return -1
	}
	var r rune
	for _, c := range data[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}
