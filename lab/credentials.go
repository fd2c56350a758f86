package lab

import (
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairway-net/fairway/apiserver/pki"
)

// writeNodeKubeconfig writes the kubeconfig of a node's agent, with a node's
// rights, and returns its file. The lab has the server's directory, and needs no
// token.
func (s *supervisor) writeNodeKubeconfig(node string) (string, error) {
	authorities, err := pki.OpenAll(filepath.Join(Dir(s.config.Name), "server", "pki"))
	if err != nil {
		return "", fmt.Errorf("credentials of node %s: %w", node, err)
	}
	pair, err := authorities.Clients.Client("system:node:"+node, "system:nodes")
	if err != nil {
		return "", fmt.Errorf("credentials of node %s: %w", node, err)
	}
	config, err := clientcmd.LoadFromFile(s.api.nodeKubeconfig)
	if err != nil {
		return "", fmt.Errorf("read kubeconfig: %w", err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	}
	file := filepath.Join(Dir(s.config.Name), node+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return "", fmt.Errorf("write kubeconfig of node %s: %w", node, err)
	}
	return file, nil
}
