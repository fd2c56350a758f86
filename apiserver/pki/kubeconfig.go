package pki

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns a kubeconfig for a client of the server at url, with
// everything it needs inside.
func (a *Authority) Kubeconfig(url, user string, client Pair) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["fairway"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: a.CertPEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: client.Cert, ClientKeyData: client.Key}
	config.Contexts["fairway"] = &clientcmdapi.Context{Cluster: "fairway", AuthInfo: user}
	config.CurrentContext = "fairway"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig of %s: %w", user, err)
	}
	return data, nil
}
