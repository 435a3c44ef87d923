// Command discover measures a whole scan for configured servers against reading
// and parsing the same files with the plain parsers, in one run. The budget is
// a ratio of three.
//
//	go run ./bench/discover
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"
	"go.yaml.in/yaml/v3"

	"github.com/patchbay-mcp/patchbay/internal/discover"
)

func main() {
	samples := flag.String("samples", "internal/discover/testdata/config", "directory of sample files, a folder per product")
	rounds := flag.Int("rounds", 300, "measurements of each")
	flag.Parse()
	if err := run(*samples, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "discover:", err)
		os.Exit(1)
	}
}

func run(samples string, rounds int) error {
	dir, err := os.MkdirTemp("", "bench-discover-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := layOut(samples, dir); err != nil {
		return err
	}
	env := discover.Env{
		OS: "linux", Home: filepath.Join(dir, "home"), Dir: filepath.Join(dir, "project"), Root: filepath.Join(dir, "root"),
		ConfigDir: filepath.Join(dir, "home/.config/patchbay"), StateDir: filepath.Join(dir, "home/.local/state/patchbay"),
	}
	ctx := context.Background()
	first := discover.Scan(ctx, env)
	var files []string
	size := 0
	for _, f := range first.Files {
		if f.Status == discover.Read {
			info, err := os.Stat(f.Path)
			if err != nil {
				return err
			}
			files, size = append(files, f.Path), size+int(info.Size())
		}
	}
	var scans, parses []time.Duration
	for range rounds {
		start := time.Now()
		discover.Scan(ctx, env)
		scans = append(scans, time.Since(start))
		start = time.Now()
		for _, f := range files {
			if err := parse(f); err != nil {
				return err
			}
		}
		parses = append(parses, time.Since(start))
	}
	scan, plain := median(scans), median(parses)
	ratio := float64(scan) / float64(plain)
	fmt.Printf("%d files, %d bytes, %d entries\n", len(files), size, len(first.Entries))
	fmt.Printf("scan            %8v\n", scan)
	fmt.Printf("read and parse  %8v\n", plain)
	fmt.Printf("ratio           %8.2f   (budget 3)\n", ratio)
	if ratio > 3 {
		return fmt.Errorf("a scan costs %.2f times reading and parsing its files", ratio)
	}
	return nil
}

// parse reads one file the way a program would that knows its format.
func parse(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var v any
	switch filepath.Ext(file) {
	case ".toml":
		err = toml.Unmarshal(data, &v)
	case ".yaml":
		err = yaml.Unmarshal(data, &v)
	default:
		if data, err = hujson.Standardize(data); err == nil {
			err = json.Unmarshal(data, &v)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// layOut copies every product's home, project and root into one of each. The
// folders that begin with an underscore hold broken files.
func layOut(samples, dir string) error {
	found := false
	err := filepath.WalkDir(samples, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(samples, path)
		if err != nil {
			return err
		}
		product, rest, _ := strings.Cut(rel, string(filepath.Separator))
		if e.IsDir() {
			if strings.HasPrefix(product, "_") {
				return filepath.SkipDir
			}
			return nil
		}
		if product == "codex" && strings.HasPrefix(rest, "project") {
			return nil // defines a table twice, which the plain parser refuses
		}
		found = true
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, rest)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
	if err == nil && !found {
		err = fmt.Errorf("no samples in %s", samples)
	}
	return err
}
