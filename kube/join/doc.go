// Package join makes a machine part of a cluster. The machine recognises the
// server by the hash of its certificate authority, presents a join token, and
// gets a certificate of its own, which it renews from then on.
//
//   - token.go: join tokens, and the Secrets that hold them
//   - trust.go: the server, known by a hash
//   - join.go: asking for the certificate, once
//   - files.go: where it is kept
//   - keep.go: renewing it
package join
