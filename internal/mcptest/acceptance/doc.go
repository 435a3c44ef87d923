// Package acceptance has agents of others, as they are published, use the
// gateway: the real binary with real servers behind it, in a fresh home; and
// servers of others be what they are without it. All of it is tests. They need
// Node and those agents and servers, so only run runs them, which says where to
// find all three.
package acceptance
