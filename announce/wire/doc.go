// Package wire is what nodes tell each other on a link, as bytes: messages that are signed with
// the cluster's key, and questions to the kernels of nodes, which can't sign. What messages are
// about is their senders' matter. Sockets get room for many of them.
package wire
