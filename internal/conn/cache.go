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

	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	cacheVersion  = 1
	cacheLife     = 30 * 24 * time.Hour
	rewriteAfter  = 24 * time.Hour // an unchanged catalog is written anew, so that it does not expire
	maxCacheFile  = 40 << 20       // four lists and what is around them
	cacheFileName = ".catalog.json"
)

// cache keeps catalogs in files, one for each key. A file that cannot be used
// is as good as none.
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

// cacheFile is the content of a file.
type cacheFile struct {
	Version int          `json:"version"`
	Key     string       `json:"key"`
	Dialect wire.Dialect `json:"dialect,omitempty"` // how the server wants to be spoken to
	Catalog *Catalog     `json:"catalog"`
}

func (c *cache) path(key string) string {
	sum := sha256.Sum256([]byte(key)) // whatever the key is, this is a name
	return filepath.Join(c.dir, hex.EncodeToString(sum[:16])+cacheFileName)
}

// load returns the catalog of a key, nil if there is none.
func (c *cache) load(key string) (*Catalog, wire.Dialect) {
	if c.dir == "" || key == "" {
		return nil, ""
	}
	data, err := atomicfile.Read(c.path(key), maxCacheFile)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("reading a saved catalog", "error", err)
		}
		return nil, ""
	}
	file, err := parseCacheFile(data, key)
	if err != nil {
		c.log.Warn("a saved catalog is ignored", "error", err)
		return nil, ""
	}
	if age := time.Since(file.Catalog.FetchedAt); age > cacheLife || age < -time.Hour {
		return nil, ""
	}
	file.Catalog.Cached = true
	return file.Catalog, file.Dialect
}

var errOtherCatalog = errors.New("it is of another version or another server")

func parseCacheFile(data []byte, key string) (cacheFile, error) {
	var file cacheFile
	if err := wire.Valid(data, wire.Limits{Size: maxCacheFile}); err != nil {
		return file, err
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return file, err
	}
	if file.Version != cacheVersion || file.Key != key || file.Catalog == nil {
		return file, errOtherCatalog
	}
	for _, kind := range listings {
		for _, item := range *kind.into(file.Catalog) {
			if name, ok := wire.StringMember(item, kind.key); !ok || name == "" {
				return file, errors.New("an item has no " + kind.key)
			}
		}
	}
	return file, nil
}

// save keeps a catalog. That it cannot is no reason to fail.
func (c *cache) save(key string, catalog *Catalog, dialect wire.Dialect) {
	if c.dir == "" {
		return
	}
	c.sweep()
	data, err := json.Marshal(cacheFile{cacheVersion, key, dialect, catalog})
	if err == nil && len(data) > maxCacheFile {
		err = errors.New("it is too large")
	}
	if err == nil {
		err = atomicfile.Write(c.path(key), data, atomicfile.Options{})
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
