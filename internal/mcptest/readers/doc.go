// Package readers checks that what Patchbay judges is what servers do, however
// they read JSON: it sends every judged method in every disguise and compares
// what was carried out with what was allowed. All of it is tests. Readers of
// other languages are modelled in Go; with the tag readers there are also real
// servers in Node and Python, which `make readers` runs.
package readers
