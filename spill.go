package patchbay

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
)

// Results too long for a model, and binary content, are kept in files: for a
// week, and a gibibyte of them at most.
const (
	spillAge  = 7 * 24 * time.Hour
	spillSize = 1 << 30
)

// spill saves a text that is too long and returns where.
func (h *Host) spill(text string) (string, error) { return h.save([]byte(text), ".txt") }

// save writes data to a file of its own that only the user can read.
func (h *Host) save(data []byte, extension string) (string, error) {
	path := filepath.Join(h.places().resultsDir(), rand.Text()+extension)
	if err := atomicfile.Write(path, data, atomicfile.Options{Mode: 0o600}); err != nil {
		return "", err
	}
	h.sweepSpills()
	return path, nil
}

// sweepSpills removes files that are too old, and the oldest of too many.
func (h *Host) sweepSpills() {
	dir := h.places().resultsDir()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // nothing was ever saved
	}
	var files []os.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b os.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	var kept int64
	for i, f := range files {
		kept += f.Size()
		if i == 0 {
			continue // the newest is being used
		}
		if h.opts.Now().Sub(f.ModTime()) > spillAge || kept > spillSize {
			_ = os.Remove(filepath.Join(dir, f.Name())) // the next sweep tries again
		}
	}
}
