// Package join is how a machine comes to belong to a cluster: it trusts the
// server by the hash of its certificate authority, shows a join token, and gets
// a certificate of its own, which it renews from then on.
//
//   - token.go: join tokens, and the Secrets that hold them
//   - trust.go: the server, known by a hash
//   - join.go: asking for the certificate, once
//   - files.go: where it is kept
//   - keep.go: renewing it
package join
