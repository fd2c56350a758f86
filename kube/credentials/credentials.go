// Package credentials knows where this machine keeps its kubeconfigs: that of its
// own API server's administrator, and its own as a node.
package credentials

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/kube/join"
)

const (
	// ServerDir is where an API server keeps its data, unless it is told otherwise.
	ServerDir = "/var/lib/fairway"
	// NodeDir is where a machine that joined keeps what makes it a node, unless it is
	// told otherwise.
	NodeDir = "/var/lib/fairway/node"
)

// Administrator is the kubeconfig of the administrator of the API server with the
// data directory.
func Administrator(serverDir string) string { return filepath.Join(serverDir, "admin.kubeconfig") }

// OfServer is the kubeconfig of this machine's own API server: "" if KUBECONFIG names
// another, or if there is none that the user may read.
func OfServer() string {
	if os.Getenv("KUBECONFIG") != "" {
		return ""
	}
	return readable(Administrator(ServerDir))
}

// OfNode is the kubeconfig of this machine as a node: "" if it hasn't joined a
// cluster, or if the user may not read it.
func OfNode() string { return readable(join.Kubeconfig(NodeDir)) }

func readable(file string) string {
	if unix.Access(file, unix.R_OK) != nil {
		return ""
	}
	return file
}
