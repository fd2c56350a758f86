// Package balance lets a client of several API servers reach one that answers.
//
// A Balancer sends all requests to one server and checks that server every two
// seconds. If the server is silent, refuses connections, or isn't ready, the
// balancer moves to one that is ready, and ends requests at the old one, so that
// watches start again at the new one. It also moves if a server rejects the
// client's certificate and another one accepts it. It learns the servers from the
// endpoints of the Service `kubernetes`, and remembers them in a file, for a start
// at which the kubeconfig's server is gone.
//
//   - balance.go: the servers, and which one is in use
//   - transport.go: requests
//   - check.go: looking at servers, and moving
//   - known.go: the file
package balance
