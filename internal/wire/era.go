package wire

import "slices"

// Era tells the two ways apart in which MCP is spoken.
type Era uint8

const (
	Legacy Era = iota + 1 // a handshake, then a session: 2024-11-05 to 2025-11-25
	Modern                // stateless, each request describes itself: 2026-07-28
)

// Versions returns the protocol revisions that this package speaks, oldest first.
func Versions() []string {
	return []string{Version20241105, Version20250326, Version20250618, Version20251125, Version20260728}
}

// EraOf returns the era of a protocol revision, zero for one that this package
// does not know.
func EraOf(version string) Era {
	switch {
	case version == Version20260728:
		return Modern
	case slices.Contains(Versions(), version):
		return Legacy
	default:
		return 0
	}
}

// Members of _meta that the protocol reserves.
const (
	MetaProgressToken      = "progressToken"
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"    // modern requests, required
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities" // modern requests, required
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"         // modern requests
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"           // modern requests
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"         // modern results
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"     // what comes on a listen stream
)

// Values of resultType, which every modern result has.
const (
	ResultComplete      = "complete"
	ResultInputRequired = "input_required"
)
