package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/patchbay-mcp/patchbay/config"
)

// Bounds of a diff.
const (
	maxDiff      = 64 << 10 // bytes shown
	maxDiffWidth = 100      // characters of a string on one line
	diffContext  = 3        // unchanged lines shown around a change
)

// Diff returns what changed between a definition and what is remembered of its
// tool, as a unified diff of indented JSON in which long texts are broken into
// lines, safe to show on a terminal. It is empty if nothing that is pinned
// changed.
func (p Pins) Diff(server string, definition json.RawMessage) string {
	d := readDefinition(definition)
	was, known := p.servers[server][d.name]
	d = d.without(was.Ignored)
	after := string(definition) + "\n"
	if d.pinned != nil {
		after = pretty(d.pinned)
	}
	if known && was.Digest == d.digest {
		return ""
	}
	return difference(quoted(d.name), was, known, after)
}

// DiffInstructions is Diff for the instructions of a server.
func (p Pins) DiffInstructions(server, text string) string {
	was, known := p.instructions[server]
	if known && was.Digest == DigestInstructions(text) {
		return ""
	}
	if text == "" {
		return difference("instructions", was, known, "")
	}
	raw, _ := json.Marshal(text) // texts always marshal
	return difference("instructions", was, known, pretty(raw))
}

// difference renders what changed between what is remembered and what is now.
func difference(label string, was PinnedTool, known bool, after string) string {
	oldLabel, before, note := label+" was not known", "", ""
	if known {
		oldLabel = label + " since " + was.Since.Format(time.DateOnly)
		switch {
		case was.Definition != nil:
			before = pretty(was.Definition)
		case was.Digest != DigestInstructions(""):
			note = "How it differs is not known, as only its digest was kept. This is what it is now:\n"
		}
	}
	diff, err := udiff.ToUnified(oldLabel, label+" now", before, udiff.Lines(before, after), diffContext)
	if err != nil { // edits that do not fit their text: show the whole
		diff = after
	}
	return note + bounded(diff)
}

// bounded escapes lines one by one and stops when enough is shown. It says so,
// as what is not shown may be what matters.
func bounded(diff string) string {
	var b strings.Builder
	lines := strings.Split(strings.TrimSuffix(diff, "\n"), "\n")
	for i, line := range lines {
		line = config.Escape(line)
		if b.Len()+len(line) >= maxDiff {
			fmt.Fprintf(&b, "… %d more lines are not shown\n", len(lines)-i)
			break
		}
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// pretty renders what is pinned of a definition for a diff by lines.
func pretty(pinned json.RawMessage) string {
	node, err := config.ParseJSON(pinned)
	if err != nil { // nested too deep to be shown in any better way
		return string(pinned) + "\n"
	}
	return prettyJSON(node, "") + "\n"
}

func prettyJSON(n config.Node, indent string) string {
	inner := indent + "  "
	var lines []string
	switch {
	case n.Kind == config.String:
		return prettyText(n.Text, inner)
	case n.Kind == config.Array && len(n.Items) > 0:
		for _, item := range n.Items {
			lines = append(lines, inner+prettyJSON(item, inner))
		}
		return "[\n" + strings.Join(lines, ",\n") + "\n" + indent + "]"
	case n.Kind == config.Object && len(n.Members) > 0:
		for _, m := range n.Members {
			lines = append(lines, inner+prettyText(m.Name, inner)+": "+prettyJSON(m.Value, inner))
		}
		return "{\n" + strings.Join(lines, ",\n") + "\n" + indent + "}"
	case n.Kind == config.Array:
		return "[]"
	case n.Kind == config.Object:
		return "{}"
	case n.Kind == config.Null:
		return "null"
	default: // numbers and booleans, as they are written
		return n.Text
	}
}

// prettyText renders a string, broken after its line ends and where it is too
// wide, so that a change in a long text does not hide in one endless line.
func prettyText(text, indent string) string {
	var pieces []string
	for text != "" {
		n := pieceLength(text)
		piece := quoted(text[:n])
		pieces = append(pieces, piece[1:len(piece)-1])
		text = text[n:]
	}
	return `"` + strings.Join(pieces, "\n"+indent) + `"`
}

// quoted returns a JSON string that is easy to read.
func quoted(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always marshals
	return strings.TrimSuffix(b.String(), "\n")
}

// pieceLength returns how much of a text goes on one line: up to a line end, or
// the last space within the width, or the width.
func pieceLength(text string) int {
	space, width := 0, 0
	for i, r := range text {
		switch {
		case r == '\n':
			return i + 1
		case width == maxDiffWidth && space > 0:
			return space
		case width == maxDiffWidth:
			return i
		}
		width++
		if r == ' ' {
			space = i + utf8.RuneLen(r)
		}
	}
	return len(text)
}
