package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
)

// Where the schemas are published, for the $schema member of a file.
const (
	ServersSchemaURL  = schemaBase + "mcp.schema.json"
	SettingsSchemaURL = schemaBase + "settings.schema.json"

	schemaBase = "https://raw.githubusercontent.com/patchbay-mcp/patchbay/main/docs/schema/"
)

// ServersSchema returns the JSON Schema of mcp.json, made from the model.
func ServersSchema() []byte {
	names := schema("type", "array", "items", schema("type", "string"), "uniqueItems", true)
	b := schemaBuilder{}
	server := b.ref(reflect.TypeFor[Server]())
	return b.document(ServersSchemaURL, "MCP servers of Patchbay",
		"$schema", schema("type", "string"),
		"mcpServers", schema(
			"description", "The servers, by name.",
			"type", "object",
			"propertyNames", schema("pattern", namePattern.String(), "maxLength", maxNameLength),
			"additionalProperties", server),
		"disabledServers", describe("Names of servers that are off, whatever file they come from. Wins over enabledServers.", names),
		"enabledServers", describe("Names of servers that are on although the file they come from says enabled: false.", names),
		"sharedServers", describe("Names of your own servers of which all directories have one process, as if their entries said shared: \"user\".", names),
	)
}

// SettingsSchema returns the JSON Schema of settings.json, made from the model.
func SettingsSchema() []byte {
	b := schemaBuilder{}
	members := []any{"$schema", schema("type", "string")}
	for _, m := range b.properties(reflect.TypeFor[Settings]()) {
		members = append(members, m.Name, m.Value)
	}
	return b.document(SettingsSchemaURL, "Settings of Patchbay", members...)
}

// schemaBuilder collects the definitions a schema refers to.
type schemaBuilder struct{ defs []Member }

// document renders a schema of an object with just these properties.
func (b *schemaBuilder) document(id, title string, properties ...any) []byte {
	n := schema(
		"$schema", "https://json-schema.org/draft/2020-12/schema",
		"$id", id, "title", title, "type", "object",
		"properties", schema(properties...),
		"additionalProperties", false)
	if len(b.defs) > 0 {
		n.Members = append(n.Members, Member{Name: "$defs", Value: Node{Kind: Object, Members: b.defs}})
	}
	return []byte(style{eol: "\n", unit: "  "}.render(n, "", 0) + "\n")
}

// ref refers to the definition of a struct, which it adds if it is missing.
func (b *schemaBuilder) ref(t reflect.Type) Node {
	if !slices.ContainsFunc(b.defs, func(m Member) bool { return m.Name == t.Name() }) {
		at := len(b.defs)
		b.defs = append(b.defs, Member{Name: t.Name()}) // keeps its place before those it refers to
		b.defs[at].Value = b.definition(t)
	}
	return schema("$ref", "#/$defs/"+t.Name())
}

func (b *schemaBuilder) definition(t reflect.Type) Node {
	var required []string
	open := false
	for f := range modelFields(t) {
		open = open || f.isExtra
		if !f.optional && !f.isExtra {
			required = append(required, f.name)
		}
	}
	n := schema("type", "object", "properties", Node{Kind: Object, Members: b.properties(t)})
	if t == reflect.TypeFor[OAuthClient]() { // also read in the words of RFC 7591
		return with(n, "anyOf", []Node{schema("required", required), schema("required", []string{"client_id"})})
	}
	if required != nil {
		n = with(n, "required", required)
	}
	switch t {
	case reflect.TypeFor[OIDC]():
		n = with(n, "required", []string{"issuer"})
	case reflect.TypeFor[Server]():
		// In our own file a member nobody knows is likely a mistake.
		return with(n, "additionalProperties", false, "allOf", serverRules())
	case reflect.TypeFor[Auth]():
		return with(n, "propertyNames", authNames(), "allOf", authRules())
	}
	if !open {
		n = with(n, "additionalProperties", false)
	}
	return n
}

// properties describes the fields of a struct.
func (b *schemaBuilder) properties(t reflect.Type) []Member {
	var members []Member
	for f := range modelFields(t) {
		if f.isExtra {
			continue
		}
		n := b.value(t.Name()+"."+f.name, f.typ)
		if text := descriptions[t.Name()+"."+f.name]; text != "" {
			n = describe(text, n)
		}
		members = append(members, Member{Name: f.name, Value: n})
		if t == reflect.TypeFor[Server]() && f.name == "type" {
			members = append(members, Member{Name: "transport", Value: with(describe("Another name of type.", b.value("", f.typ)), "deprecated", true)})
		}
	}
	return members
}

// value describes the values of a type; field is the one that has it.
func (b *schemaBuilder) value(field string, t reflect.Type) Node {
	switch field {
	case "Auth.scopes", "OAuth.scopes":
		return schema("anyOf", []Node{schema("type", "array", "items", schema("type", "string")), schema("type", "string")})
	case "Server.shared":
		return schema("enum", []Node{{Kind: Bool, Text: "true"}, {Kind: Bool, Text: "false"}, {Kind: String, Text: string(SharedUser)}})
	case "OAuth.callbackPort":
		return schema("type", "integer", "minimum", 1, "maximum", 65535)
	case "Naming.maxLength":
		return schema("type", "integer", "minimum", minNameLength, "maximum", maxToolName)
	case "Gateway.memory":
		return schema("type", "string", "pattern", "^[1-9][0-9]* ?[KMG]iB$")
	case "Gateway.firstList":
		return schema("type", "number", "minimum", 0, "maximum", int(maxFirstList.Milliseconds()))
	case "Gateway.profiles":
		return schema("type", "object", "propertyNames", schema("pattern", profileName.String()), "additionalProperties", b.value("", t.Elem()))
	case "Limits.resultChars":
		return schema("type", "integer", "minimum", 1, "maximum", maxResultChars)
	case "Limits.processes", "Limits.starts":
		return schema("type", "integer", "minimum", 1, "maximum", maxProcesses)
	case "HookCommand.type":
		return enum(hookTypeCommand)
	case "HookCommand.timeout":
		return schema("type", "integer", "minimum", 1, "maximum", maxHookTimeout)
	case "ToolRule.exposedName":
		return schema("type", "string", "pattern", exposedNamePattern.String())
	}
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return schema()
	case reflect.TypeFor[Secret]():
		return schema("type", "string")
	case reflect.TypeFor[map[string]Secret]():
		return schema("type", "object", "additionalProperties", schema("type", []string{"string", "number", "boolean", "null"}))
	case reflect.TypeFor[*int64](): // a time span
		return schema("type", "number", "minimum", 0)
	case reflect.TypeFor[Transport]():
		return enum(Stdio, HTTP, SSE)
	case reflect.TypeFor[AuthMode]():
		return enum(AuthNone, AuthAPIKey, AuthClientCredentials, AuthAuthorizationCode)
	case reflect.TypeFor[Pin]():
		return enum(PinStrict, PinWarn, PinOff)
	case reflect.TypeFor[InheritEnv]():
		return enum(InheritProduct, InheritBasic)
	case reflect.TypeFor[PermissionPolicy]():
		return enum(AlwaysAllow, AlwaysAsk, AlwaysDeny)
	case reflect.TypeFor[PermissionDefault]():
		return enum(DefaultAllow, DefaultAsk, DefaultDeny)
	case reflect.TypeFor[NamingStyle]():
		return enum(NamingClaude, NamingXcsh, NamingOMP, NamingPlain)
	case reflect.TypeFor[Collision]():
		return enum(CollisionSuffix, CollisionLastWins)
	}
	switch t.Kind() {
	case reflect.String:
		return schema("type", "string")
	case reflect.Bool:
		return schema("type", "boolean")
	case reflect.Int, reflect.Int64:
		return schema("type", "integer", "minimum", 0)
	case reflect.Pointer:
		return b.value("", t.Elem())
	case reflect.Slice:
		return schema("type", "array", "items", b.value("", t.Elem()))
	case reflect.Map:
		return schema("type", "object", "additionalProperties", b.value("", t.Elem()))
	default:
		return b.ref(t)
	}
}

// serverRules are those of Validate, as far as a schema can tell.
func serverRules() []Node {
	when := func(types []Transport, require string) Node {
		return schema(
			"if", schema("properties", schema("type", enum(types...)), "required", []string{"type"}),
			"then", schema("required", []string{require}))
	}
	return []Node{
		schema("anyOf", []Node{schema("required", []string{"command"}), schema("required", []string{"url"})}),
		schema("not", schema("required", []string{"command", "url"})),
		when([]Transport{Stdio}, "command"),
		when([]Transport{HTTP, SSE}, "url"),
	}
}

// authNames forbids references to secrets.
func authNames() Node {
	return schema("anyOf", []Node{schema("const", "oauthProviderRef"), schema("not", schema("pattern", "Ref$"))})
}

func authRules() []Node {
	when := func(mode AuthMode, require ...string) Node {
		return schema(
			"if", schema("properties", schema("mode", enum(mode)), "required", []string{"mode"}),
			"then", schema("required", require))
	}
	return []Node{
		schema("anyOf", []Node{schema("required", []string{"mode"}), schema("required", []string{"type"})}),
		when(AuthAPIKey, "key"),
		when(AuthClientCredentials, "tokenUrl", "clientId", "clientSecret"),
	}
}

func enum[T ~string](values ...T) Node {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return schema("enum", texts)
}

// describe puts a description first, where readers look for it.
func describe(text string, n Node) Node {
	return Node{Kind: Object, Members: append(schema("description", text).Members, n.Members...)}
}

// with returns n with more members.
func with(n Node, members ...any) Node {
	n.Members = append(slices.Clip(n.Members), schema(members...).Members...)
	return n
}

// schema builds an object from names and values by turns.
func schema(members ...any) Node {
	n := Node{Kind: Object}
	for i := 0; i < len(members); i += 2 {
		n.Members = append(n.Members, Member{Name: members[i].(string), Value: schemaValue(members[i+1])})
	}
	return n
}

func schemaValue(v any) Node {
	switch x := v.(type) {
	case Node:
		return x
	case bool:
		return Node{Kind: Bool, Text: strconv.FormatBool(x)}
	case int:
		return Node{Kind: Number, Text: strconv.Itoa(x)}
	case []Node:
		return Node{Kind: Array, Items: x}
	case []string:
		n := Node{Kind: Array}
		for _, s := range x {
			n.Items = append(n.Items, Node{Kind: String, Text: s})
		}
		return n
	default:
		return Node{Kind: String, Text: v.(string)}
	}
}
