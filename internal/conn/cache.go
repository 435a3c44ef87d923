package conn

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	cacheVersion  = 1
	cacheLife     = 30 * 24 * time.Hour
	rewriteAfter  = 24 * time.Hour // what did not change is written anew, so that it does not expire
	maxCacheFile  = 40 << 20       // four lists and what is around them
	cacheFileName = ".catalog.json"
)

// cache keeps what is known of servers in files, one for each key. A file that
// cannot be used is as good as none.
type cache struct {
	dir   string // empty means nothing is kept
	log   *slog.Logger
	sweep func()
}

func newCache(dir string, log *slog.Logger) *cache {
	c := &cache{dir: dir, log: log}
	c.sweep = sync.OnceFunc(c.removeExpired)
	return c
}

// saved is the content of a file.
type saved struct {
	Key     string
	Dialect wire.Dialect // how the server wants to be spoken to; empty if that is not known
	Catalog *Catalog     // nil if there is none
	Last    *Known       // nil if it is not known

	AsksRoots bool // the server asks its clients for roots
}

// differs reports whether it is worth writing down in the place of what is in
// the file.
func (s saved) differs(old saved) bool {
	if s.Key != old.Key || s.Dialect != old.Dialect || s.AsksRoots != old.AsksRoots || (s.Catalog == nil) != (old.Catalog == nil) || (s.Last == nil) != (old.Last == nil) {
		return true
	}
	if s.Catalog != nil && (!s.Catalog.sameLists(old.Catalog) || s.Catalog.FetchedAt.Sub(old.Catalog.FetchedAt) >= rewriteAfter) {
		return true
	}
	return s.Last != nil && (s.Last.State != old.Last.State || s.Last.Reason != old.Last.Reason || s.Last.At.Sub(old.Last.At) >= rewriteAfter)
}

func (c *cache) path(key string) string {
	sum := sha256.Sum256([]byte(key)) // whatever the key is, this is a name
	return filepath.Join(c.dir, hex.EncodeToString(sum[:16])+cacheFileName)
}

// load returns what was saved under a key; the zero value if that is nothing.
func (c *cache) load(key string) saved {
	if c.dir == "" || key == "" {
		return saved{}
	}
	data, err := atomicfile.Read(c.path(key), maxCacheFile)
	if errors.Is(err, fs.ErrNotExist) {
		return saved{}
	}
	var s saved
	if err == nil {
		s, err = parseSaved(data, key)
	}
	if err != nil {
		c.log.Warn("a saved catalog is ignored", "error", err)
		return saved{}
	}
	if s.Catalog != nil && expired(s.Catalog.FetchedAt) {
		s.Catalog = nil
	}
	if s.Last != nil && expired(s.Last.At) {
		s.Last = nil
	}
	return s
}

// expired reports whether a time is too long ago, or lies in the future.
func expired(at time.Time) bool {
	age := time.Since(at)
	return age > cacheLife || age < -time.Hour
}

// savedText is the form of a file. The lists in it are the bytes of the servers,
// which encoding/json would rewrite.
type savedText struct {
	Version int          `json:"version"`
	Key     string       `json:"key"`
	Dialect wire.Dialect `json:"dialect,omitempty"`

	AsksRoots bool `json:"asksRoots,omitempty"`

	State  config.State `json:"state,omitempty"`
	Reason string       `json:"reason,omitempty"`
	At     time.Time    `json:"at,omitzero"`

	FetchedAt    time.Time                    `json:"fetchedAt,omitzero"`
	Instructions string                       `json:"instructions,omitempty"`
	Notes        []string                     `json:"notes,omitempty"`
	Raw          map[string]json.RawMessage   `json:"raw,omitempty"`   // capabilities and serverInfo
	Lists        map[string][]json.RawMessage `json:"lists,omitempty"` // by the member of the result
}

var errOtherCatalog = errors.New("it is of another version or another server")

func parseSaved(data []byte, key string) (saved, error) {
	if err := wire.Valid(data, wire.Limits{Size: maxCacheFile}); err != nil {
		return saved{}, err
	}
	var text savedText
	if err := json.Unmarshal(data, &text); err != nil {
		return saved{}, err
	}
	if text.Version != cacheVersion || text.Key != key {
		return saved{}, errOtherCatalog
	}
	s := saved{Key: key, Dialect: text.Dialect, AsksRoots: text.AsksRoots}
	if text.State != "" {
		s.Last = &Known{text.State, text.Reason, text.At}
	}
	if text.FetchedAt.IsZero() {
		return s, nil
	}
	s.Catalog = &Catalog{
		Capabilities: text.Raw["capabilities"], ServerInfo: text.Raw["serverInfo"], Instructions: text.Instructions,
		FetchedAt: text.FetchedAt, Cached: true, Notes: text.Notes,
	}
	for _, kind := range listings {
		items := text.Lists[kind.member]
		for _, item := range items {
			if name, ok := wire.StringMember(item, kind.key); !ok || name == "" {
				return saved{}, errors.New("an item has no " + kind.key)
			}
		}
		*kind.into(s.Catalog) = items
	}
	return s, nil
}

// appendTo appends the file's content.
func (s saved) appendTo(dst []byte) ([]byte, error) {
	text := savedText{Version: cacheVersion, Key: s.Key, Dialect: s.Dialect, AsksRoots: s.AsksRoots}
	if s.Last != nil {
		text.State, text.Reason, text.At = s.Last.State, s.Last.Reason, s.Last.At
	}
	if s.Catalog != nil {
		text.FetchedAt, text.Instructions, text.Notes = s.Catalog.FetchedAt, s.Catalog.Instructions, s.Catalog.Notes
	}
	head, err := json.Marshal(text)
	if err != nil || s.Catalog == nil {
		return append(dst, head...), err
	}
	dst = append(dst, head[:len(head)-1]...)
	dst = append(dst, `,"raw":{`...)
	if raw := s.Catalog.Capabilities; raw != nil {
		dst = append(append(dst, `"capabilities":`...), raw...)
	}
	if raw := s.Catalog.ServerInfo; raw != nil {
		dst = append(append(separate(dst), `"serverInfo":`...), raw...)
	}
	dst = append(dst, `},"lists":{`...)
	for _, kind := range listings {
		dst = append(append(append(separate(dst), '"'), kind.member...), `":[`...)
		for _, item := range *kind.into(s.Catalog) {
			dst = append(separate(dst), item...)
		}
		dst = append(dst, ']')
	}
	return append(dst, "}}"...), nil
}

// separate appends a comma unless an array or object has just begun.
func separate(text []byte) []byte {
	if last := text[len(text)-1]; last == '[' || last == '{' {
		return text
	}
	return append(text, ',')
}

// save writes a file. That it cannot is no reason to fail.
func (c *cache) save(s saved) {
	if c.dir == "" {
		return
	}
	c.sweep()
	data, err := s.appendTo(nil)
	if err == nil && len(data) > maxCacheFile {
		err = errors.New("it is too large")
	}
	if err == nil {
		err = atomicfile.Write(c.path(s.Key), data, atomicfile.Options{})
	}
	if err != nil {
		c.log.Warn("saving a catalog", "error", err)
	}
}

// removeExpired removes the files that load would ignore for their age.
func (c *cache) removeExpired() {
	entries, _ := os.ReadDir(c.dir) // there may be no directory yet
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !strings.HasSuffix(e.Name(), cacheFileName) || time.Since(info.ModTime()) <= cacheLife {
			continue
		}
		if err := os.Remove(filepath.Join(c.dir, e.Name())); err != nil {
			c.log.Debug("removing a saved catalog", "error", err)
		}
	}
}
