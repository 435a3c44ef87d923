package wire

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A clause is one sentence of the specification, a request that puts it to the
// test, and what must come back.
type clause struct {
	says   string
	req    *http.Request
	status int
	code   int64  // of the JSON-RPC error; 0 if none is expected
	has    string // what the body must contain
}

func (s *site) check(t *testing.T, clauses []clause) {
	t.Helper()
	for _, c := range clauses {
		t.Run(c.says, func(t *testing.T) {
			r := s.do(c.req)
			if r.status != c.status {
				t.Fatalf("status %d, want %d: %s", r.status, c.status, r.body)
			}
			if c.code != 0 && r.code(t) != c.code {
				t.Errorf("code %d, want %d: %s", r.code(t), c.code, r.body)
			}
			if !strings.Contains(r.body, c.has) {
				t.Errorf("body lacks %s: %s", c.has, r.body)
			}
			if c.status != http.StatusOK && r.header.Get(headerSession) != "" {
				t.Error("a session id")
			}
			if r.header.Get("Cache-Control") != "no-store" || r.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers %v", r.header)
			}
		})
	}
}

// with changes headers of a request: an empty value removes one.
func with(req *http.Request, headers ...string) *http.Request {
	for i := 0; i < len(headers); i += 2 {
		switch {
		case headers[i] == "Host":
			req.Host = headers[i+1]
		case headers[i+1] == "":
			req.Header.Del(headers[i])
		default:
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return req
}

func twice(req *http.Request, header string) *http.Request {
	req.Header[header] = append(req.Header[header], req.Header[header]...)
	return req
}

const echoCall = `{"name":"echo","arguments":{"text":"hi"}}`

// Security & Endpoint; the checks of every request whatever its era.
func TestHTTPGuard(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{Guard: Guard{Hosts: []string{"gate.example", "other.example:8080"}, Origins: []string{"https://app.example"}}})
	list := func(headers ...string) *http.Request {
		return with(s.modernRequest(1, "tools/list", "", "{}"), headers...)
	}
	s.check(t, []clause{
		{says: "no Origin: a program", req: list(), status: 200},
		{says: "a loopback Origin is valid", req: list("Origin", "http://localhost:1234"), status: 200},
		{says: "a loopback IPv6 Origin is valid", req: list("Origin", "http://[::1]:1234"), status: 200},
		{says: "an Origin of the list is valid, across sites", req: list("Origin", "https://app.example", "Sec-Fetch-Site", "cross-site"), status: 200},
		{says: "an invalid Origin gets 403", req: list("Origin", "http://evil.example"), status: 403, has: "Origin denied"},
		{says: "Origin null gets 403", req: list("Origin", "null"), status: 403},
		{says: "an Origin that only begins like a valid one gets 403", req: list("Origin", "http://localhost.evil.example"), status: 403},
		{says: "an Origin with user info gets 403", req: list("Origin", "http://localhost@evil.example"), status: 403},
		{says: "two Origins get 403", req: twice(list("Origin", "http://localhost"), "Origin"), status: 403},
		{says: "another address of 127/8 is not this machine's name", req: list("Origin", "http://127.0.0.2"), status: 403},
		{says: "a cross-site request gets 403", req: list("Sec-Fetch-Site", "cross-site"), status: 403},
		{says: "a request from another port gets 403", req: list("Sec-Fetch-Site", "same-site", "Origin", "http://localhost:1"), status: 403},
		{says: "a same-origin request passes", req: list("Sec-Fetch-Site", "same-origin"), status: 200},
		{says: "a rebound name gets 421", req: list("Host", "evil.example"), status: 421},
		{says: "a name of the list passes", req: list("Host", "gate.example:99"), status: 200},
		{says: "a name with its port passes", req: list("Host", "other.example:8080"), status: 200},
		{says: "a name with another port does not", req: list("Host", "other.example:81"), status: 421},
		{says: "GET is guarded", req: with(s.request("GET", ""), "Origin", "http://evil.example"), status: 403},
		{says: "DELETE is guarded", req: with(s.request("DELETE", ""), "Host", "evil.example"), status: 421},
	})
}

// The guard also stands in front of handlers of others.
func TestGuardProtect(t *testing.T) {
	h := Guard{}.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	if w := direct(h, "GET", ""); w.Code != http.StatusTeapot {
		t.Errorf("%d", w.Code)
	}
	if w := direct(h, "GET", "", "Origin", "http://evil.example"); w.Code != http.StatusForbidden {
		t.Errorf("%d", w.Code)
	}
}

// What a POST must look like before anybody reads it.
func TestHTTPMessageForm(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{MaxBody: 2000})
	list := func(headers ...string) *http.Request {
		return with(s.modernRequest(1, "tools/list", "", "{}"), headers...)
	}
	post := func(body string) *http.Request { return s.request("POST", body) }
	deep := `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`
	unknownLength := post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	unknownLength.ContentLength = -1
	longUnknown := post(strings.Repeat(" ", 3000))
	longUnknown.ContentLength = -1
	s.check(t, []clause{
		{says: "Content-Type must be JSON", req: list("Content-Type", "text/plain"), status: 415, code: CodeInvalidRequest},
		{says: "Content-Type must be there", req: list("Content-Type", ""), status: 415},
		{says: "Content-Type must be there once", req: twice(list(), "Content-Type"), status: 415},
		{says: "a charset other than UTF-8 is refused", req: list("Content-Type", "application/json; charset=latin1"), status: 415},
		{says: "UTF-8 may be said", req: list("Content-Type", "application/json; charset=UTF-8"), status: 200},
		{says: "Content-Encoding is refused", req: list("Content-Encoding", "gzip"), status: 415},
		{says: "Accept must allow an answer", req: list("Accept", "text/html"), status: 406},
		{says: "Accept may exclude", req: list("Accept", "application/json;q=0, text/event-stream; q=0.0"), status: 406},
		{says: "a client that takes JSON only gets JSON", req: list("Accept", "application/json"), status: 200, has: `{"jsonrpc"`},
		{says: "a client that takes events only gets events", req: list("Accept", "text/event-stream"), status: 200, has: "data: {"},
		{says: "anything may be accepted", req: list("Accept", "*/*"), status: 200},
		{says: "a body over the limit gets 413", req: post(strings.Repeat(" ", 3000)), status: 413, has: `{"max_bytes":2000}`},
		{says: "a body of unknown length, over the limit, gets 413", req: longUnknown, status: 413, has: `{"max_bytes":2000}`},
		{says: "a body of unknown length is read", req: unknownLength, status: 200},
		{says: "no JSON", req: post("{"), status: 400, code: CodeParseError, has: `"id":null`},
		{says: "an empty body", req: post(""), status: 400, code: CodeParseError},
		{says: "not UTF-8", req: post("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}"), status: 400, code: CodeParseError},
		{says: "a member name twice", req: post(`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`), status: 400, code: CodeParseError},
		{says: "a member name twice inside arguments", req: post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"a":1,"a":2}}}`), status: 400, code: CodeParseError},
		{says: "nested too deeply", req: post(deep), status: 400, code: CodeParseError},
		{says: "a wrong version of JSON-RPC", req: post(`{"jsonrpc":"1.0","id":7,"method":"ping"}`), status: 400, code: CodeInvalidRequest, has: `"id":7`},
		{says: "an id that is no id", req: post(`{"jsonrpc":"2.0","id":true,"method":"ping"}`), status: 400, code: CodeInvalidRequest},
		{says: "an id that is null", req: post(`{"jsonrpc":"2.0","id":null,"method":"ping"}`), status: 400, code: CodeInvalidRequest},
		{says: "params that are no object", req: post(`{"jsonrpc":"2.0","id":7,"method":"ping","params":3}`), status: 400, code: CodeInvalidRequest},
		{says: "other HTTP methods get 405", req: s.request("PUT", ""), status: 405},
		{says: "preflights get 405: there is no CORS", req: s.request("OPTIONS", ""), status: 405},
	})
}

func TestHTTPModernClauses(t *testing.T) {
	annotated, err := ParseParamHeaders([]byte(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, newTestServer(t, func(o *ServerOptions) {
		o.ParamHeaders = func(_ *Session, tool string) ParamHeaders {
			if tool == "echo" {
				return annotated
			}
			return nil
		}
	}), HTTPOptions{})
	ask := func(method, params string, headers ...string) *http.Request {
		return with(s.modernRequest(1, method, params, "{}"), headers...)
	}
	call := func(headers ...string) *http.Request { return ask("tools/call", echoCall, headers...) }
	raw := func(body string, headers ...string) *http.Request {
		return with(s.request("POST", body, headerVersion, Version20260728, headerMethod, "tools/list"), headers...)
	}
	const version, capabilities = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"io.modelcontextprotocol/clientCapabilities":{}`
	listWith := func(meta string) string {
		return `{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"_meta":{` + meta + `}}}`
	}
	clauses := []clause{
		{says: "Sending Messages 4: the client MUST NOT send responses", req: raw(`{"jsonrpc":"2.0","id":1,"result":{}}`), status: 400, code: CodeInvalidRequest},
		{says: "Sending Messages 4: the body MUST be a single message", req: raw(`[` + listWith(version+","+capabilities) + `]`), status: 400, code: CodeInvalidRequest},
		{says: "Sending Messages 5: an accepted notification gets 202", req: raw(`{"jsonrpc":"2.0","method":"notifications/x"}`), status: 202},
		{says: "Protocol Version Header: MUST be there", req: call(headerVersion, ""), status: 400, code: CodeHeaderMismatch},
		{says: "Protocol Version Header: MUST match the body", req: call(headerVersion, "2025-11-25"), status: 400, code: CodeHeaderMismatch},
		{says: "Protocol Version Header: exactly one", req: twice(call(), headerVersion), status: 400, code: CodeHeaderMismatch},
		{says: "Protocol Version Header: an unknown revision", req: raw(listWith(`"io.modelcontextprotocol/protocolVersion":"1900-01-01",`+capabilities), headerVersion, "1900-01-01"), status: 400, code: CodeUnsupportedVersion, has: `"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"1900-01-01"`},
		{says: "Standard Headers: Mcp-Method MUST be there", req: call(headerMethod, ""), status: 400, code: CodeHeaderMismatch},
		{says: "Standard Headers: Mcp-Method MUST match", req: call(headerMethod, "tools/list"), status: 400, code: CodeHeaderMismatch},
		{says: "Case Sensitivity: values are case-sensitive", req: call(headerMethod, "TOOLS/CALL"), status: 400, code: CodeHeaderMismatch},
		{says: "Standard Headers: one Mcp-Method", req: twice(call(), headerMethod), status: 400, code: CodeHeaderMismatch},
		{says: "Standard Headers: Mcp-Name MUST be there", req: call(headerName, ""), status: 400, code: CodeHeaderMismatch},
		{says: "Standard Headers: Mcp-Name MUST match", req: call(headerName, "other"), status: 400, code: CodeHeaderMismatch, has: `"id":1`},
		{says: "Standard Headers: Mcp-Name is the URI of a resource", req: ask("resources/read", `{"uri":"file:///a"}`, headerName, "file:///b"), status: 400, code: CodeHeaderMismatch},
		{says: "Value Encoding: Mcp-Name in base64", req: call(headerName, "=?base64?ZWNobw==?="), status: 200},
		{says: "Value Encoding: bad base64", req: call(headerName, "=?base64?ZWNobw?="), status: 400, code: CodeHeaderMismatch},
		{says: "Custom Headers: MUST be there if the argument is", req: ask("tools/call", `{"name":"echo","arguments":{"region":"eu"}}`), status: 400, code: CodeHeaderMismatch},
		{says: "Custom Headers: MUST match", req: ask("tools/call", `{"name":"echo","arguments":{"region":"eu"}}`, "Mcp-Param-Region", "us"), status: 400, code: CodeHeaderMismatch},
		{says: "Custom Headers: equal", req: ask("tools/call", `{"name":"echo","arguments":{"region":"eu"}}`, "Mcp-Param-Region", "eu"), status: 200},
		{says: "Custom Headers: unknown ones are ignored", req: call("Mcp-Param-Other", "x"), status: 200},
		{says: "_meta: missing", req: raw(`{"jsonrpc":"2.0","id":9,"method":"tools/list"}`), status: 400, code: CodeInvalidParams, has: `"id":9`},
		{says: "_meta: protocolVersion missing", req: raw(listWith(capabilities)), status: 400, code: CodeInvalidParams},
		{says: "_meta: clientCapabilities missing", req: raw(listWith(version)), status: 400, code: CodeInvalidParams},
		{says: "_meta: clientCapabilities of the wrong type", req: raw(listWith(version + `,"io.modelcontextprotocol/clientCapabilities":[]`)), status: 400, code: CodeInvalidParams},
		{says: "_meta: clientInfo is optional", req: raw(listWith(version + "," + capabilities)), status: 200},
		{says: "_meta: names may be written with escapes", req: raw(listWith(strings.ReplaceAll(version+","+capabilities, "/", `\/`))), status: 200},
		{says: "Logging: an unknown level", req: raw(listWith(version + "," + capabilities + `,"io.modelcontextprotocol/logLevel":"loud"`)), status: 400, code: CodeInvalidParams},
		{says: "an unknown method gets 404", req: ask("no/such", ""), status: 404, code: CodeMethodNotFound},
		{says: "an unknown tool", req: ask("tools/call", `{"name":"nope"}`), status: 400, code: CodeInvalidParams},
		{says: "an undeclared capability", req: ask("tools/call", `{"name":"ask"}`), status: 400, code: CodeMissingClientCapability, has: `"requiredCapabilities":{"elicitation":{"form":{}}}`},
		{says: "Earlier Revisions: a session id is ignored", req: call(headerSession, "nonsense"), status: 200},
		{says: "Earlier Revisions: Last-Event-ID is ignored", req: call(headerLastEventID, "1-1"), status: 200},
		{says: "Earlier Revisions: GET gets 405", req: s.request("GET", "", headerVersion, Version20260728), status: 405},
		{says: "Earlier Revisions: DELETE gets 405", req: s.request("DELETE", "", headerVersion, Version20260728), status: 405},
		{says: "Subscriptions: a filter must be there", req: ask("subscriptions/listen", ""), status: 400, code: CodeInvalidParams},
		{says: "Subscriptions: a filter of the wrong type", req: ask("subscriptions/listen", `{"notifications":{"toolsListChanged":"yes"}}`), status: 400, code: CodeInvalidParams},
		{says: "Subscriptions: only as a stream", req: ask("subscriptions/listen", `{"notifications":{}}`, "Accept", "application/json"), status: 406},
		{says: "Discovery", req: ask("server/discover", ""), status: 200, has: `"supportedVersions":["2026-07-28",`},
		{says: "Caching: a list says how it may be kept", req: ask("tools/list", ""), status: 200, has: `"ttlMs":0,"cacheScope":"private"`},
		{says: "Caching: so does a resource", req: ask("resources/read", `{"uri":"x"}`), status: 200, has: `"ttlMs":0,"cacheScope":"private"`},
		{says: "Results: each has a type and names the server", req: call(), status: 200, has: `"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}},`},
	}
	for _, removed := range []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"} {
		clauses = append(clauses, clause{says: "removed: " + removed, req: ask(removed, ""), status: 404, code: CodeMethodNotFound})
	}
	s.check(t, clauses)
}

func TestHTTPLegacyClauses(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{})
	march, june := s.initialize(Version20250326, "{}"), s.initialize(Version20250618, "{}")
	post := func(body string, headers ...string) *http.Request {
		return s.request("POST", body, append([]string{headerSession, june}, headers...)...)
	}
	batch := func(session, body string) *http.Request { return s.request("POST", body, headerSession, session) }
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}`
	s.check(t, []clause{
		{says: "Session Management 2: without a session 400", req: s.request("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), status: 400, code: CodeInvalidRequest},
		{says: "Session Management 2: ping needs none", req: s.request("POST", ping), status: 200, has: `"result":{}`},
		{says: "Session Management 2: two session ids", req: twice(post(ping), headerSession), status: 400},
		{says: "Session Management 3: an unknown session 404", req: s.request("POST", ping, headerSession, "nonsense"), status: 404, code: -32001},
		{says: "Session Management 3: an unknown session 404 on GET", req: s.request("GET", "", headerSession, "nonsense"), status: 404},
		{says: "Session Management 3: an unknown session 404 on DELETE", req: s.request("DELETE", "", headerSession, "nonsense"), status: 404},
		{says: "Protocol Version Header: absent means what was negotiated", req: post(ping), status: 200},
		{says: "Protocol Version Header: negotiated", req: post(ping, headerVersion, Version20250618), status: 200},
		{says: "Protocol Version Header: unsupported", req: post(ping, headerVersion, "1900-01-01"), status: 400, code: CodeUnsupportedVersion},
		{says: "Protocol Version Header: unsupported on GET", req: s.request("GET", "", headerSession, june, headerVersion, "1900-01-01"), status: 400},
		{says: "Protocol Version Header: unsupported on initialize", req: s.request("POST", initialize, headerVersion, "1900-01-01"), status: 400},
		{says: "Versioning: initialize selects the legacy era whatever the header", req: s.request("POST", initialize, headerVersion, Version20260728), status: 200, has: `"protocolVersion":"2025-06-18"`},
		{says: "Lifecycle: initialize twice", req: post(initialize), status: 200, code: CodeInvalidRequest},
		{says: "Lifecycle: initialize without a version", req: s.request("POST", `{"jsonrpc":"2.0","id":1,"method":"initialize"}`), status: 200, code: CodeInvalidParams},
		{says: "Sending Messages 4: a notification gets 202", req: post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), status: 202},
		{says: "Sending Messages 4: a response gets 202", req: post(`{"jsonrpc":"2.0","id":77,"result":{}}`), status: 202},
		{says: "an unknown method", req: post(`{"jsonrpc":"2.0","id":"x","method":"no/such"}`), status: 200, code: CodeMethodNotFound, has: `"id":"x"`},
		{says: "a method of the other era: discover", req: post(`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`), status: 200, code: CodeMethodNotFound},
		{says: "a method of the other era: listen", req: post(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{}}}`), status: 200, code: CodeMethodNotFound},
		{says: "results are left as they are", req: post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), status: 200, has: `"result":{"tools":[`},
		{says: "Logging: an unknown level", req: post(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}`), status: 200, code: CodeInvalidParams},
		{says: "Listening 2: GET must accept a stream", req: with(s.request("GET", "", headerSession, june), "Accept", "application/json"), status: 406},
		{says: "Listening: GET without a session", req: s.request("GET", ""), status: 400},
		{says: "Resumability: an event that nobody sent", req: s.request("GET", "", headerSession, june, headerLastEventID, "99-1"), status: 400},
		{says: "Resumability: an event id that is none", req: s.request("GET", "", headerSession, june, headerLastEventID, "x"), status: 400},
		{says: "Batching 2025-03-26: an array of answers", req: batch(march, `[`+ping+`,{"jsonrpc":"2.0","method":"notifications/x"}]`), status: 200, has: `[{"jsonrpc":"2.0","id":1,"result":{}}]`},
		{says: "Batching 2025-03-26: notifications only get 202", req: batch(march, `[{"jsonrpc":"2.0","method":"notifications/x"}]`), status: 202},
		{says: "Batching 2025-03-26: an invalid item gets its own error", req: batch(march, `[3]`), status: 200, has: `[{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
		{says: "Batching 2025-03-26: an empty batch", req: batch(march, `[]`), status: 400, code: CodeInvalidRequest},
		{says: "Batching 2025-03-26: too long a batch", req: batch(march, `[`+strings.Repeat(ping+",", 50)+ping+`]`), status: 400, code: CodeInvalidRequest},
		{says: "Batching 2025-03-26: an id twice", req: batch(march, `[`+ping+`,`+ping+`]`), status: 400, code: CodeInvalidRequest},
		{says: "Batching: not in 2025-06-18", req: batch(june, `[`+ping+`]`), status: 400, code: CodeInvalidRequest},
		{says: "Batching: needs a session", req: s.request("POST", `[`+ping+`]`), status: 400},
		{says: "Session Management 5: DELETE ends the session", req: s.request("DELETE", "", headerSession, june), status: 204},
		{says: "Session Management 3: and then 404", req: post(ping), status: 404},
		{says: "Session Management 3: the other session lives", req: batch(march, ping), status: 200},
	})
}

func TestVersionNegotiation(t *testing.T) {
	for _, c := range []struct {
		name, asked, min string
		speaks           []string
		want             string // version, or the error code
	}{
		{"the same", Version20241105, "", nil, Version20241105},
		{"the latest legacy one for an unknown one", "2099-01-01", "", nil, Version20251125},
		{"the latest legacy one for a modern one", Version20260728, "", nil, Version20251125},
		{"an older one than spoken", Version20241105, "", []string{Version20250618}, Version20250618},
		{"strict: an older one", Version20250326, Version20250618, []string{Version20250618}, "-32602"},
		{"strict: no version at all", "latest", Version20250618, []string{Version20250618}, "-32602"},
		{"strict: a newer one goes down", "2099-01-01", Version20250618, []string{Version20250618}, Version20250618},
		{"only modern", Version20251125, "", []string{Version20260728}, "-32022"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Versions, o.MinVersion = c.speaks, c.min }), HTTPOptions{})
			r := s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q}}`, c.asked))
			got, ok := StringMember([]byte(r.body), "result", "protocolVersion")
			if !ok {
				got = fmt.Sprint(r.code(t))
				if r.header.Get(headerSession) != "" || !strings.Contains(r.body, `"supported":[`) {
					t.Errorf("%v %s", r.header, r.body)
				}
			}
			if got != c.want {
				t.Errorf("got %s, want %s: %s", got, c.want, r.body)
			}
		})
	}
}

// The profile of the coding-tools server.
func TestHTTPStrictProfile(t *testing.T) {
	s := newSite(t, newTestServer(t, func(o *ServerOptions) {
		o.Versions, o.MinVersion = []string{Version20250618}, Version20250618
		o.RequireInitialize, o.Batches = true, 50
	}), HTTPOptions{JSONOnly: true, RequireLength: true, MaxBody: 1 << 20})
	session := s.initialize(Version20250618, "{}")
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	chunked := s.request("POST", ping, headerSession, session)
	chunked.ContentLength = -1
	s.check(t, []clause{
		{says: "before initialize", req: s.request("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), status: 400, code: CodeNotInitialized, has: "Server not initialized"},
		{says: "ping before initialize", req: s.request("POST", ping), status: 200},
		{says: "an unsupported version header", req: s.request("POST", ping, headerVersion, "2024-11-05"), status: 400, code: CodeInvalidRequest, has: `"id":null`},
		{says: "a modern request", req: s.modernRequest(1, "tools/list", "", "{}"), status: 400, code: CodeInvalidRequest},
		{says: "an unknown session", req: s.request("POST", ping, headerSession, "x"), status: 404, code: -32001, has: "Unknown MCP session"},
		{says: "GET", req: s.request("GET", "", headerSession, session), status: 405},
		{says: "no length", req: chunked, status: 411},
		{says: "a batch", req: s.request("POST", "["+ping+"]", headerSession, session), status: 200, has: "[{"},
		{says: "no stream, whatever the handler sends", req: s.request("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":1}}}`, headerSession, session), status: 200, has: `{"jsonrpc":"2.0","id":1,"result":`},
		{says: "only events accepted", req: with(s.request("POST", ping, headerSession, session), "Accept", "text/event-stream"), status: 406},
		{says: "an Origin elsewhere", req: s.request("POST", ping, "Origin", "http://evil.example"), status: 403, has: "Origin denied"},
	})
}
