// Package interop has our client talk to the servers of the MCP project, which
// are written with its TypeScript SDK. All of it is tests. They need Node and
// those servers, so only ../run runs them, which says where to find both.
package interop
