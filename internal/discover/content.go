package discover

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/patchbay-mcp/patchbay/config"
)

// content is what a file said when it was read. It does not change once made,
// and any number of scans use it.
type content struct {
	info  fs.FileInfo
	taken time.Time // before it was read

	root  config.Node
	wrong error  // why it is not in the format its place demands
	text  []byte // of a script
	size  int    // bytes, where all of them were kept
	token int    // the line of a token of the gateway, or 0
}

// same reports whether a file is still as it was read.
func (c *content) same(info fs.FileInfo) bool {
	return unchanged(c.info, info) && c.taken.Sub(info.ModTime()).Abs() >= settled
}

// Cache keeps what files say for as long as a Memory does, so that scans of
// several projects read a file once. It may be used from several goroutines; nil
// keeps nothing.
type Cache struct {
	mu    sync.Mutex
	files map[cacheKey]*cachedFile
	reads atomic.Int64 // files that were read, for tests
}

// cacheKey is a file, and how it is read.
type cacheKey struct {
	path string
	form fileForm
}

// cachedFile is read by one scan at a time.
type cachedFile struct {
	mu   sync.Mutex
	last weak.Pointer[content]
}

// read returns what the file at a path says, which info is about.
func (c *Cache) read(path string, form fileForm, info fs.FileInfo) (*content, error) {
	if c == nil {
		return readContent(path, form)
	}
	file := c.file(cacheKey{path, form})
	file.mu.Lock()
	defer file.mu.Unlock()
	if known := file.last.Value(); known != nil && known.same(info) {
		return known, nil
	}
	c.reads.Add(1)
	now, err := readContent(path, form)
	file.last = weak.Make(now)
	return now, err
}

func (c *Cache) file(key cacheKey) *cachedFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	file := c.files[key]
	if file == nil {
		for key, other := range c.files { // what nobody remembers any more
			if other.mu.TryLock() {
				if other.last.Value() == nil {
					delete(c.files, key)
				}
				other.mu.Unlock()
			}
		}
		if c.files == nil {
			c.files = map[cacheKey]*cachedFile{}
		}
		file = &cachedFile{}
		c.files[key] = file
	}
	return file
}

// fileForm is how a file is read.
type fileForm uint8

const (
	wholeFile  fileForm = iota
	scriptFile          // as text
	claudeFile          // what concerns servers in .claude.json
)

// parts are what is read of long files.
var parts = map[fileForm]config.Part{claudeFile: claudePart}

// maxSize is what a file may have to be read.
func (f fileForm) maxSize() int64 {
	if parts[f] != nil {
		return config.MaxPartFile
	}
	return config.MaxFileSize
}

// readContent reads a file, without being held up.
func readContent(path string, form fileForm) (*content, error) {
	taken := time.Now()
	f, info, err := openFile(path, form.maxSize())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := parseContent(path, form, &limited{f, form.maxSize()}, info.Size())
	if err != nil {
		return nil, reason(err)
	}
	c.info, c.taken = info, taken
	return c, nil
}

// parseContent reads a file of a form, of about that size. An error is one of
// reading.
func parseContent(path string, form fileForm, r io.Reader, size int64) (*content, error) {
	c := &content{}
	if part := parts[form]; part != nil {
		c.root, c.wrong = config.ReadPart(r, part)
		if _, syntax := errors.AsType[*config.SyntaxError](c.wrong); c.wrong != nil && !syntax {
			return nil, c.wrong
		}
		c.token = tokenIn(c.root)
		return c, nil
	}
	all := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	if _, err := all.ReadFrom(r); err != nil {
		return nil, err
	}
	data := all.Bytes()
	c.size = len(data)
	if at := gatewayToken.FindIndex(data); at != nil {
		c.token = 1 + bytes.Count(data[:at[0]], []byte("\n"))
	}
	if form == scriptFile {
		c.text = data
	} else {
		c.root, c.wrong = parse(path, data)
	}
	return c, nil
}

// tokenIn returns the line of a token of the gateway among the texts of a node.
func tokenIn(n config.Node) int {
	if gatewayToken.MatchString(n.Text) {
		return n.Line
	}
	for _, it := range n.Items {
		if line := tokenIn(it); line > 0 {
			return line
		}
	}
	for _, m := range n.Members {
		if line := tokenIn(m.Value); line > 0 {
			return line
		}
	}
	return 0
}

// limited is a file that may have grown since it was looked at.
type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(b []byte) (int, error) {
	n, err := l.r.Read(b[:min(int64(len(b)), l.left+1)])
	if l.left -= int64(n); l.left < 0 {
		return 0, errGrows
	}
	return n, err
}

var errGrows = errors.New("too large, and growing")
