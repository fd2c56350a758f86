// Package web serves the page of `fairway web`: what explain and doctor say, for
// a browser on this machine, with the rights of whoever runs the command.
//
//   - serve.go: the HTTP server and its paths
//   - guard.go: who may ask: a token that is good once, a cookie, the Host header
//   - store.go, index.go: API objects as watches tell of them, and what concerns
//     one Service
//   - watches.go: the watches; what the user may not read is said
//   - survey.go: doctor's findings about every Service, kept up to date
//   - summary.go, problems.go, services.go, service.go, nodes.go, changes.go: the answers, as
//     JSON of the schema fairway.dev/diagnosis/v1
//   - history.go: the latest changes that the API told of
//   - stream.go, flows.go: what changed, and connections, as they happen
//   - dist: the page itself, built from web/ by `make check NAME=web`
//
// The API only reads. Lists are searched and cut into pages here, so that a
// browser never holds 10,000 Services.
package web
