package discover

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/patchbay-mcp/patchbay/config"
)

// maxNodes bounds the values of one TOML or YAML file, those included that
// aliases repeat.
const maxNodes = 100_000

// parseYAML parses the first document of a YAML file. An error is a
// *config.SyntaxError.
func parseYAML(data []byte) (config.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return config.Node{}, fromYAML(err)
	}
	empty := config.Node{Kind: config.Object, Line: 1, Column: 1}
	if len(doc.Content) == 0 {
		return empty, nil
	}
	c := yamlConverter{left: maxNodes}
	n, err := c.node(doc.Content[0], 0)
	if err == nil && n.Kind == config.Null {
		return empty, nil
	}
	return n, err
}

// fromYAML turns "yaml: line N: text" into a SyntaxError.
func fromYAML(err error) error {
	e := &config.SyntaxError{Line: 1, Column: 1, Message: strings.TrimPrefix(err.Error(), "yaml: ")}
	if n, _ := fmt.Sscanf(e.Message, "line %d:", &e.Line); n == 1 {
		_, e.Message, _ = strings.Cut(e.Message, ": ")
	}
	if strings.HasPrefix(e.Message, "unknown anchor") {
		e.Message = "unknown anchor" // its name may be a password that begins with *
	}
	return e
}

type yamlConverter struct {
	left int // values that may still come
}

func (c *yamlConverter) node(n *yaml.Node, depth int) (config.Node, error) {
	out := config.Node{Line: n.Line, Column: n.Column}
	if depth > config.MaxDepth {
		return out, &config.SyntaxError{Line: n.Line, Column: n.Column, Message: fmt.Sprintf("nested more than %d levels deep", config.MaxDepth)}
	}
	if c.left--; c.left < 0 {
		return out, &config.SyntaxError{Line: n.Line, Column: n.Column, Message: fmt.Sprintf("more than %d values", maxNodes)}
	}
	switch n.Kind {
	case yaml.AliasNode:
		// An alias that lies in its own anchor ends at the depth limit.
		return c.node(n.Alias, depth+1)
	case yaml.SequenceNode:
		out.Kind = config.Array
		for _, child := range n.Content {
			item, err := c.node(child, depth+1)
			if err != nil {
				return out, err
			}
			out.Items = append(out.Items, item)
		}
		return out, nil
	case yaml.MappingNode:
		return c.mapping(n, depth)
	default:
		out.Kind, out.Text = yamlScalar(n)
		return out, nil
	}
}

// mapping converts a mapping. What a merge key brings comes last, and only
// where the mapping itself says nothing.
func (c *yamlConverter) mapping(n *yaml.Node, depth int) (config.Node, error) {
	out := config.Node{Kind: config.Object, Line: n.Line, Column: n.Column}
	var merged []config.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, err := c.node(n.Content[i], depth+1)
		if err != nil {
			return out, err
		}
		value, err := c.node(n.Content[i+1], depth+1)
		if err != nil {
			return out, err
		}
		switch {
		case key.Kind == config.Array || key.Kind == config.Object:
			return out, &config.SyntaxError{Line: key.Line, Column: key.Column, Message: "a key must be a plain value, found " + key.Kind.String()}
		case n.Content[i].ShortTag() == "!!merge" && value.Kind == config.Array:
			merged = append(merged, value.Items...)
		case n.Content[i].ShortTag() == "!!merge":
			merged = append(merged, value)
		default:
			out.Members = append(out.Members, config.Member{Name: n.Content[i].Value, Value: value, Line: key.Line})
		}
	}
	config.MarkRepeated(out.Members)
	has := make(map[string]bool, len(out.Members))
	for _, m := range out.Members {
		has[m.Name] = true
	}
	for _, from := range merged {
		for _, m := range from.Members {
			if !has[m.Name] {
				has[m.Name] = true
				out.Members = append(out.Members, m)
			}
		}
	}
	return out, nil
}

// yamlScalar gives a scalar its JSON type.
func yamlScalar(n *yaml.Node) (config.Kind, string) {
	switch n.ShortTag() {
	case "!!null":
		return config.Null, ""
	case "!!bool":
		return config.Bool, strings.ToLower(n.Value)
	case "!!int":
		if v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64); err == nil {
			return config.Number, strconv.FormatInt(v, 10)
		}
	case "!!float":
		if v, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64); err == nil && !math.IsInf(v, 0) && !math.IsNaN(v) {
			return config.Number, strconv.FormatFloat(v, 'g', -1, 64)
		}
	}
	return config.String, n.Value
}
