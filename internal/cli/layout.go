package cli

import (
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/config"
)

// This file fits text to the width of a terminal. A width of 0 means that there
// is none: what reads a pipe gets each row and each sentence as one line.

// gap is what stands between two columns.
const gap = "  "

// cell is one field of a table.
type cell struct {
	text  string
	style style
	cut   bool // of its column as much is shown as there is room for, and nothing if there is none
}

// leastCut is how narrow a column of which something is cut off may be.
const leastCut = 12

// table writes rows in columns, under a header.
func (p *printer) table(header []string, rows [][]cell) {
	head := make([]cell, len(header))
	for i, h := range header {
		head[i] = cell{text: h, style: bold}
	}
	p.rows(append([][]cell{head}, rows...))
}

// rows writes rows in columns; the last column is not padded. Where all of them
// do not fit, the widest columns become narrower: their fields are cut or
// wrapped.
func (p *printer) rows(rows [][]cell) {
	natural, least, cuts := map[int]int{}, map[int]int{}, map[int]bool{} // by column
	for _, row := range rows {
		for i := range row {
			row[i].text = config.Escape(row[i].text)
			natural[i] = max(natural[i], width(row[i].text))
			for _, word := range wordsOf(row[i].text) {
				least[i] = max(least[i], width(word))
			}
			cuts[i] = cuts[i] || row[i].cut
		}
	}
	widths := natural
	if p.width > 0 {
		for i := range cuts {
			if cuts[i] {
				least[i] = min(natural[i], leastCut)
			}
		}
		widths = fit(natural, least, cuts, p.width)
	}
	for _, row := range rows {
		p.row(row, widths, cuts)
	}
}

// row writes one row, in as many lines as its longest field takes.
func (p *printer) row(row []cell, widths map[int]int, cuts map[int]bool) {
	fields, height, columns := make([][]string, len(row)), 1, 0
	for i, c := range row {
		fields[i] = []string{c.text}
		switch {
		case widths[i] == 0 && c.text != "": // left out
			continue
		case width(c.text) <= widths[i]:
		case cuts[i]:
			head, _ := cut(c.text, widths[i]-1)
			fields[i] = []string{head + "…"}
		default:
			fields[i] = wrap(c.text, widths[i])
		}
		height, columns = max(height, len(fields[i])), i+1
	}
	for n := range height {
		last := columns - 1
		for height > 1 && last > 0 && (n >= len(fields[last]) || fields[last][n] == "") {
			last--
		}
		for i, c := range row[:last+1] {
			text := ""
			if n < len(fields[i]) {
				text = fields[i][n]
			}
			if text != "" {
				p.WriteString(p.paint(text, c.style))
			}
			if i < last {
				p.WriteString(strings.Repeat(" ", widths[i]-width(text)) + gap)
			}
		}
		p.WriteByte('\n')
	}
}

// wordsOf are what a text is broken between. A symbol stays with what it is about.
func wordsOf(text string) []string {
	all := strings.Fields(text)
	if len(all) > 1 && strings.Contains("✓✗!○-", all[0]) {
		return append([]string{all[0] + " " + all[1]}, all[2:]...)
	}
	return all
}

// fit returns how wide each column may be in so many columns of a terminal: none
// wider than its fields are, and none so narrow that words break, unless there is
// no other way, or a column that may be cut can be left out.
func fit(natural, least map[int]int, cuts map[int]bool, terminal int) map[int]int {
	at := func(level int, least, most map[int]int) (widths map[int]int, sum int) {
		widths = map[int]int{}
		for i := range most {
			widths[i] = min(max(level, least[i], 1), max(most[i], 1))
			sum += widths[i]
		}
		return widths, sum
	}
	room := terminal - len(gap)*(len(natural)-1)
	for level := room; level > 0; level-- {
		if widths, sum := at(level, least, natural); sum <= room {
			return widths
		}
	}
	if last := len(natural) - 1; cuts[last] {
		delete(natural, last)
		delete(least, last)
		return fit(natural, least, cuts, terminal)
	}
	for level := room; level > 0; level-- {
		if widths, sum := at(level, nil, least); sum <= room {
			return widths
		}
	}
	widths, _ := at(1, nil, least)
	return widths
}

// wrap breaks a text into lines of at most so many columns: between words, and
// within those that are longer than a line.
func wrap(text string, columns int) []string {
	columns = max(columns, 1)
	lines := []string{""}
	for _, word := range wordsOf(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case width(*last)+1+width(word) <= columns:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
		for width(lines[len(lines)-1]) > columns {
			head, rest := cut(lines[len(lines)-1], columns)
			if i := strings.LastIndexAny(head, "/-_."); i > len(head)/2 { // paths and names break where they are made of parts
				head, rest = head[:i+1], head[i+1:]+rest
			}
			lines[len(lines)-1] = head
			lines = append(lines, rest)
		}
	}
	return lines
}

// wrapped breaks a line for a terminal of so many columns. What follows the first
// is indented a little more, if that is indented.
func wrapped(line string, columns int) string {
	body := strings.TrimLeft(line, " ")
	indent := len(line) - len(body)
	if columns <= 0 || width(line) <= columns || columns < indent+20 { // too narrow to do better than the terminal
		return line
	}
	more := indent
	if indent > 0 {
		more += 2
	}
	lines := wrapWords(body, columns-indent, columns-more)
	return strings.Repeat(" ", indent) + strings.Join(lines, "\n"+strings.Repeat(" ", more))
}

// wrapWords breaks a text between words: the first line has so many columns and
// the others so many. A word that is too long, such as a path, is left to the
// terminal, so that it can be copied.
func wrapWords(text string, first, others int) []string {
	var lines []string
	room := first
	for text != "" {
		if width(text) <= room {
			return append(lines, text)
		}
		end := 0 // of the words that fit, in bytes
		for i, r := range text {
			if r != ' ' {
				continue
			}
			if end > 0 && width(text[:i]) > room {
				break
			}
			end = i
		}
		if end == 0 {
			return append(lines, text)
		}
		lines = append(lines, strings.TrimRight(text[:end], " "))
		text = strings.TrimLeft(text[end:], " ")
		room = others
	}
	return lines
}

// cut splits a text after so many columns.
func cut(text string, columns int) (head, rest string) {
	at := 0
	for i, r := range text {
		if at += runeWidth(r); at > columns && i > 0 {
			return text[:i], text[i:]
		}
	}
	return text, ""
}

// width is how many columns a text takes on a terminal. The sequences that paint
// it take none.
func width(text string) int {
	n := 0
	for i := 0; i < len(text); {
		if text[i] == '\x1b' {
			if end := strings.IndexByte(text[i:], 'm'); end > 0 {
				i += end + 1
				continue
			}
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		n += runeWidth(r)
		i += size
	}
	return n
}

// runeWidth is how many columns a character takes: ideographs and the like, and
// most emoji, take two. Combining marks count as one, which at worst wraps early.
func runeWidth(r rune) int {
	switch {
	case r < 0x1100:
		return 1
	case r <= 0x115f, // Hangul Jamo
		r >= 0x2e80 && r <= 0xa4cf && r != 0x303f, // CJK to Yi
		r >= 0xac00 && r <= 0xd7a3,                // Hangul
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f,
		r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6,
		r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}
