package join

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/certificate"

	"github.com/fairway-net/fairway/internal/keptfile"
)

// pairName begins the names of the files with the machine's certificates.
const pairName = "fairway-node"

// Kubeconfig is where a joined machine with the given directory has its
// kubeconfig.
func Kubeconfig(dir string) string { return filepath.Join(dir, "agent.kubeconfig") }

func openStore(dir string) (certificate.FileStore, error) {
	pki := filepath.Join(dir, "pki")
	if err := os.MkdirAll(pki, 0o700); err != nil {
		return nil, fmt.Errorf("create certificate directory: %w", err)
	}
	store, err := certificate.NewFileStore(pairName, pki, pki, "", "")
	if err != nil {
		return nil, fmt.Errorf("open certificate directory: %w", err)
	}
	return store, nil
}

// writeKubeconfig writes the kubeconfig that makes a machine a joined one. It
// names the files of the certificate, which changes with each renewal, and of what
// servers are known by, which changes when their authority is replaced.
func writeKubeconfig(dir, server, node string, ca []byte, pair string) error {
	if err := keptfile.Write(serversFile(dir), ca, 0o644); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["fairway"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: serversFile(dir)}
	config.AuthInfos[node] = &clientcmdapi.AuthInfo{ClientCertificate: pair, ClientKey: pair}
	config.Contexts["fairway"] = &clientcmdapi.Context{Cluster: "fairway", AuthInfo: node}
	config.CurrentContext = "fairway"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return keptfile.Write(Kubeconfig(dir), data, 0o600)
}

// Membership is what a machine's directory says of the cluster it belongs to.
type Membership struct {
	Server string
	Node   string
	caHash string
}

// Member reads it. fs.ErrNotExist says that the machine belongs to none.
func Member(dir string) (*Membership, error) {
	file := Kubeconfig(dir)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("this machine hasn't joined a cluster: %w", err)
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return nil, fmt.Errorf("read kubeconfig %s: it names no cluster", file)
	}
	cluster := config.Clusters[current.Cluster]
	ca := cluster.CertificateAuthorityData
	if cluster.CertificateAuthority != "" {
		if ca, err = os.ReadFile(cluster.CertificateAuthority); err != nil {
			return nil, fmt.Errorf("read certificate authority: %w", err)
		}
	}
	h, err := HashPEM(bytes.TrimSpace(ca))
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", file, err)
	}
	return &Membership{Server: cluster.Server, Node: current.AuthInfo, caHash: h}, nil
}

// Forget deletes what Join wrote.
func Forget(dir string) error {
	err := os.Remove(Kubeconfig(dir))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if removed := os.Remove(serversFile(dir)); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	files, globErr := filepath.Glob(filepath.Join(dir, "pki", pairName+"-*"))
	err = errors.Join(err, globErr)
	for _, f := range files {
		err = errors.Join(err, os.Remove(f))
	}
	return err
}
