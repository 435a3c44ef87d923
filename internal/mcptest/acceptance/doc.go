// Package acceptance has agents of others, as they are published, use the
// gateway: the real binary with real servers behind it, in a fresh home. All of
// it is tests. They need Node and those agents, so only run runs them, which
// says where to find both.
package acceptance
