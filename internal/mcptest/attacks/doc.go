// Package attacks has clients that mean harm, or are merely many, use the
// gateway: the real binary with little memory, in a fresh home, with a scripted
// server behind it. All of it is tests, which take longer than the others may, so
// only `make long` runs them.
package attacks
