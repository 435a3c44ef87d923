package config

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func TestPublishedSchemas(t *testing.T) {
	golden(t, "../docs/schema/mcp.schema.json", ServersSchema())
	golden(t, "../docs/schema/settings.schema.json", SettingsSchema())
}

// compileSchema also checks a schema against the one of schemas.
func compileSchema(t *testing.T, data []byte, url, fragment string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(url, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(url + fragment)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t *testing.T, s *jsonschema.Schema, n Node) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(n.JSON()))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// fixtures calls f for every file of an archive.
func fixtures(t *testing.T, archive string, f func(t *testing.T, n Node)) {
	t.Helper()
	ar, err := txtar.ParseFile(filepath.Join("testdata/schema", archive))
	if err != nil || len(ar.Files) == 0 {
		t.Fatal("no fixtures", err)
	}
	for _, file := range ar.Files {
		t.Run(file.Name, func(t *testing.T) {
			n, err := ParseJSON(file.Data)
			if err != nil {
				t.Fatal(err)
			}
			f(t, n)
		})
	}
}

// serverProblems is what the reader of our own files finds wrong with a server.
func serverProblems(name string, n Node) []Problem {
	f := NewFields(n, "", "")
	s := DecodeServer(f)
	for name := range f.Rest() {
		f.Report(SeverityWarning, name, "not understood", "")
	}
	for _, p := range Validate(name, s, Lenient) {
		if p.Severity == SeverityError { // what has no effect is not wrong
			*f.Problems = append(*f.Problems, p)
		}
	}
	return *f.Problems
}

func TestServersSchema(t *testing.T) {
	s := compileSchema(t, ServersSchema(), ServersSchemaURL, "")
	fixtures(t, "mcp_valid.txtar", func(t *testing.T, n Node) {
		if err := check(t, s, n); err != nil {
			t.Error(err)
		}
		servers, _ := n.Get("mcpServers")
		for _, m := range servers.Members {
			for _, p := range serverProblems(m.Name, m.Value) {
				t.Errorf("%s: the reader says %s", m.Name, p)
			}
		}
	})
	fixtures(t, "mcp_invalid.txtar", func(t *testing.T, n Node) {
		if check(t, s, n) == nil {
			t.Error("the schema accepts it")
		}
	})
	server := compileSchema(t, ServersSchema(), ServersSchemaURL, "#/$defs/Server")
	fixtures(t, "server_invalid.txtar", func(t *testing.T, n Node) {
		if check(t, server, n) == nil {
			t.Error("the schema accepts it")
		}
		if serverProblems("x", n) == nil {
			t.Error("the reader finds nothing wrong")
		}
	})
}

// The fixtures of discovery hold good and bad servers side by side: the schema
// and the reader must agree on each.
func TestSchemaAgreesWithReader(t *testing.T) {
	s := compileSchema(t, ServersSchema(), ServersSchemaURL, "#/$defs/Server")
	good, bad := 0, 0
	err := filepath.WalkDir("../internal/discover/testdata/config/patchbay", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "mcp.json" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n, err := ParseJSON(data)
		if err != nil {
			return err
		}
		servers, _ := n.Get("mcpServers")
		for _, m := range servers.Members {
			err, problems := check(t, s, m.Value), serverProblems(m.Name, m.Value)
			if (err == nil) != (len(problems) == 0) {
				t.Errorf("%s: %s: the schema says %v, the reader %v", path, m.Name, err, problems)
			}
			if err == nil {
				good++
			} else {
				bad++
			}
		}
		return nil
	})
	if err != nil || good == 0 || bad == 0 {
		t.Errorf("%d good and %d bad servers, %v", good, bad, err)
	}
}

func TestSettingsSchema(t *testing.T) {
	s := compileSchema(t, SettingsSchema(), SettingsSchemaURL, "")
	decode := func(n Node) []Problem {
		f := NewFields(n, "", "")
		DecodeSettings(f)
		return *f.Problems
	}
	fixtures(t, "settings_valid.txtar", func(t *testing.T, n Node) {
		if err := check(t, s, n); err != nil {
			t.Error(err)
		}
		for _, p := range decode(n) {
			t.Errorf("the reader says %s", p)
		}
	})
	fixtures(t, "settings_invalid.txtar", func(t *testing.T, n Node) {
		if check(t, s, n) == nil {
			t.Error("the schema accepts it")
		}
		if decode(n) == nil {
			t.Error("the reader finds nothing wrong")
		}
	})
}

// Whatever is written to a file must be what the schema promises.
func TestEncodedServersFollowTheSchema(t *testing.T) {
	s := compileSchema(t, ServersSchema(), ServersSchemaURL, "#/$defs/Server")
	full := everyField(func(string) string { return "name" })
	full.Type, full.URL, full.Auth.Mode, full.Extra = Stdio, "", AuthClientCredentials, nil
	full.Pin, full.Shared = PinWarn, SharedNever
	for i := range full.Tools {
		full.Tools[i].PermissionPolicy = AlwaysDeny
	}
	for _, server := range []Server{full, {URL: "https://example.com"}, {Command: "x", Args: []string{}, EnabledTools: []string{}}} {
		n, err := ParseJSON(EncodeServer(server))
		if err != nil {
			t.Fatal(err)
		}
		if err := check(t, s, n); err != nil {
			t.Errorf("%s\n%v", n.JSON(), err)
		}
	}
}

// Every member has a description, and no description is left of one that went.
func TestDescriptions(t *testing.T) {
	known := map[string]bool{}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[Server](), reflect.TypeFor[Auth](), reflect.TypeFor[OAuthClient](), reflect.TypeFor[OAuthTokens](),
		reflect.TypeFor[OAuth](), reflect.TypeFor[ToolRule](), reflect.TypeFor[Settings](), reflect.TypeFor[Permissions](),
		reflect.TypeFor[Naming](), reflect.TypeFor[Discovery](), reflect.TypeFor[Limits](),
		reflect.TypeFor[Gateway](), reflect.TypeFor[Profile](), reflect.TypeFor[OIDC](),
		reflect.TypeFor[Hooks](), reflect.TypeFor[HookGroup](), reflect.TypeFor[HookCommand](),
	} {
		for f := range modelFields(typ) {
			key := typ.Name() + "." + f.name
			known[key] = true
			if descriptions[key] == "" && !f.isExtra {
				t.Errorf("%s has no description", key)
			}
		}
	}
	for key := range descriptions {
		if !known[key] {
			t.Errorf("%s is described but does not exist", key)
		}
	}
}
