// Package wire speaks MCP: JSON-RPC messages and the protocol's own rules, for
// revisions 2024-11-05 to 2026-07-28, as client and as server, over stdio,
// Streamable HTTP, legacy HTTP+SSE (client only) and memory.
//
// It is byte-transparent. A message is validated once (UTF-8, no duplicate
// member names, bounded depth and size); after that only the envelope and the
// few members that route it are ever decoded. Params and results travel as the
// very bytes that were validated, so unknown members, member order and the text
// of numbers survive.
//
// From the bottom up:
//
//	Message    one JSON-RPC message: envelope decoded, payload raw   message.go, parse.go, scan.go
//	Member     reads and splices single members of raw JSON          member.go
//	Conn       moves whole messages over one stream                  stdio.go, memory.go, legacysse.go
//	Peer       multiplexes calls over a Conn, in both directions     peer.go, call.go, handle.go
//	Link       what a Peer and an HTTP client have in common         link.go
//	Client     MCP's client side on a Link, both eras                client*.go, connect.go, httpclient.go, proxy.go
//	Server     MCP's server side, both eras                          server.go, serve.go, session.go, describe.go, listen.go
//	           its requests that ask the client back                 mrtr.go, parking.go, progress.go
//	           over HTTP, from the connection up                     deadline.go, httpserver.go, httplegacy.go, httpmodern.go
//
// Every exported type is safe for concurrent use unless it says otherwise. The
// package starts no process, reads no file and knows nothing of configuration,
// names or permissions.
package wire

// The protocol revisions, oldest first. The last is the modern era: stateless,
// self-describing requests. The others are the legacy era: a handshake, then a
// session.
const (
	Version20241105 = "2024-11-05"
	Version20250326 = "2025-03-26"
	Version20250618 = "2025-06-18"
	Version20251125 = "2025-11-25"
	Version20260728 = "2026-07-28"
)

// Limits that hold unless an option says otherwise.
const (
	DefaultMaxMessage = 64 << 20 // bytes of one message
	DefaultMaxDepth   = 100      // nesting of objects and arrays

	// DefaultAnswerDepth is that of messages with a result or an error.
	DefaultAnswerDepth = 1000
)
