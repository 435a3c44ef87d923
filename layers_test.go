package patchbay_test

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/patchbay-mcp/patchbay"

// layers is the import table of the design: which packages of ours each
// package may import. Changing it is a design decision; docs/architecture.md
// shows the picture.
var layers = map[string]string{
	"config":              "",
	"internal/proc":       "",
	"internal/atomicfile": "",
	"internal/patch":      "",
	"internal/wire":       "",
	"internal/lane":       "",
	"internal/policy":     "config",
	"internal/bridge":     "config",
	"internal/discover":   "config",
	"internal/secret":     "config internal/proc",
	"internal/cred":       "config internal/secret internal/atomicfile",
	"internal/workspace":  "internal/atomicfile",
	"internal/search":     "internal/workspace",
	"internal/sandbox":    "internal/proc",
	"internal/shell":      "internal/proc internal/sandbox",
	"internal/conn":       "config internal/secret internal/cred internal/proc internal/sandbox internal/atomicfile internal/wire",
	"":                    "config internal/discover internal/secret internal/cred internal/conn internal/bridge internal/policy internal/proc internal/atomicfile internal/wire",
	"codetools":           "internal/workspace internal/search internal/patch internal/shell internal/sandbox internal/proc internal/wire",
	"internal/gateway":    "patchbay config internal/lane internal/wire",
	"internal/control":    "patchbay config internal/atomicfile internal/wire",
	"internal/observe":    "patchbay config internal/atomicfile internal/wire",
	"internal/tui":        "internal/control patchbay",
	"internal/console":    "internal/control patchbay",
	"internal/cli":        "patchbay config codetools internal/gateway internal/control internal/observe internal/tui internal/console internal/sandbox",
	"internal/mcptest":    "internal/wire",
	"cmd/patchbay":        "internal/cli",
}

type goPackage struct {
	ImportPath string
	Dir        string
	Name       string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Name,GoFiles,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// short is a package's path within the module, as the table has it.
func short(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

func TestImportsGoDown(t *testing.T) {
	for _, p := range listPackages(t) {
		name := short(p.ImportPath)
		// Programs beside the product, benchmarks and conformance fixtures, may
		// use what they measure; nothing may use them.
		beside := strings.HasPrefix(name, "bench/") || strings.HasPrefix(name, "internal/mcptest/")
		allowed, known := layers[name]
		if !known && !beside {
			t.Errorf("%s is not in the import table of layers_test.go", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, module) {
				continue
			}
			target := short(imp)
			if strings.HasPrefix(target, "bench/") || (strings.HasPrefix(target, "internal/mcptest") && !beside) {
				t.Errorf("%s imports %s, which is for tests and benchmarks", p.ImportPath, imp)
				continue
			}
			if target == "" {
				target = "patchbay"
			}
			if !beside && !slices.Contains(strings.Fields(allowed), target) {
				t.Errorf("%s may not import %s", p.ImportPath, imp)
			}
		}
	}
}

func TestEveryPackageHasOneComment(t *testing.T) {
	for _, p := range listPackages(t) {
		comments := 0
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), path.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				comments++
				if want := "Package " + p.Name + " "; p.Name != "main" && !strings.HasPrefix(f.Doc.Text(), want) {
					t.Errorf("%s: the package comment in %s does not begin with %q", p.ImportPath, file, want)
				}
			}
		}
		if comments != 1 && len(p.GoFiles) > 0 {
			t.Errorf("%s has %d package comments, want 1", p.ImportPath, comments)
		}
	}
}

func TestRootLinksNoFace(t *testing.T) {
	for _, p := range listPackages(t) {
		if p.ImportPath != module {
			continue
		}
		for _, dep := range p.Deps {
			for _, face := range []string{"/internal/cli", "/internal/tui", "/internal/console", "github.com/spf13/cobra", "charm.land/"} {
				if dep == module+face || strings.HasPrefix(dep, face) {
					t.Errorf("the library links %s", dep)
				}
			}
		}
	}
}
