// Package balance lets a client of several API servers reach one that answers.
//
// A Balancer sends all requests to one server and looks at that every two
// seconds. When it is silent, refuses connections, or says that it isn't ready,
// the balancer moves to one that is, and ends what is under way at the old one:
// watches begin again at the new one. So it does when a server doesn't accept who
// the client is, and another one does. Which servers there are it learns from the
// endpoints of the Service `kubernetes`; it remembers them in a file, for a
// start at which the server that the kubeconfig names is gone.
//
//   - balance.go: the servers, and which one is in use
//   - transport.go: requests
//   - check.go: looking at servers, and moving
//   - known.go: the file
package balance
