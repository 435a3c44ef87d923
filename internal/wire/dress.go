package wire

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Dress adds what the modern era wants in every result, as far as the result
// does not have it: resultType, the name of this server, and how it may be kept
// if it may. The server does so itself with what a handler returns; one that
// answers with the same large result again and again can have it done once,
// since a result that begins with these members need not be searched for them.
func (s *Server) Dress(method string, result json.RawMessage) json.RawMessage {
	return s.dressAs(s.description, method, result)
}

func (s *Server) dressAs(d *Description, method string, result json.RawMessage) json.RawMessage {
	head := make([]byte, 0, 80+len(d.identity)+len(result))
	head, rest := s.appendDressed(head, d, method, result)
	return append(head, rest...)
}

// dressed is dressAs in two pieces, so that a large result need not be copied.
func (s *Server) dressed(d *Description, method string, result json.RawMessage) (lead []byte, rest json.RawMessage) {
	return s.appendDressed(make([]byte, 0, 80+len(d.identity)), d, method, result)
}

// appendDressed appends the beginning of the dressed result to head and returns the
// rest, which is a part of result as a rule.
func (s *Server) appendDressed(head []byte, d *Description, method string, result json.RawMessage) ([]byte, json.RawMessage) {
	var hasType, hasMeta, hasTTL, hasScope bool
	complete, cached := true, cacheable(method)
	c := newCursor(result)
	if !c.open {
		result = json.RawMessage("{}")
		c = newCursor(result)
	}
	start, empty := c.pos, true
	named := result
	for c.next() {
		empty = false
		switch string(c.name()) {
		case "resultType":
			hasType = true
			complete = string(c.value()) == `"`+ResultComplete+`"`
		case "ttlMs":
			hasTTL = true
		case "cacheScope":
			hasScope = true
		case "_meta":
			hasMeta = true
			if meta := newCursor(c.value()); meta.open && !meta.find(MetaServerInfo) {
				named, _ = SetMember(result, d.info, "_meta", MetaServerInfo)
			}
		}
		if hasType && hasMeta && (!cached || hasTTL && hasScope) {
			break
		}
	}
	head = append(head, '{')
	if !hasType {
		head = append(head, `"resultType":"complete",`...)
	}
	if complete && cached {
		var hint CacheHint
		if s.opts.Cache != nil {
			hint = s.opts.Cache(method)
		}
		if !hasTTL {
			head = append(head, `"ttlMs":`...)
			head = append(strconv.AppendInt(head, max(hint.TTLMillis, 0), 10), ',')
		}
		if !hasScope && hint.Public {
			head = append(head, `"cacheScope":"public",`...)
		} else if !hasScope {
			head = append(head, `"cacheScope":"private",`...)
		}
	}
	if !hasMeta {
		head = append(head, d.identity...)
	}
	if empty {
		head = head[:len(head)-1] // the last comma
	}
	return head, named[start:]
}

// cacheable reports whether results of the method must say how they may be kept.
func cacheable(method string) bool {
	switch method {
	case "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read":
		return true
	}
	return false
}

// name is the decoded name of the current member.
func (c *cursor) name() []byte {
	raw := c.text[c.nameStart+1 : c.nameEnd-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return appendUnescaped(nil, raw)
}
