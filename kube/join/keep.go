package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/certificate"
)

// Keep renews the certificate of a machine that joined with the given
// directory, by the API that config leads to, until ctx is done. Clients made from its kubeconfig take the new
// certificate up by themselves.
func Keep(ctx context.Context, dir string, config *rest.Config, log *slog.Logger) error {
	store, err := openStore(dir)
	if err != nil {
		return err
	}
	member, err := Member(dir)
	if err != nil {
		return err
	}
	manager, err := certificate.NewManager(&certificate.Config{
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) {
			return kubernetes.NewForConfig(rest.CopyConfig(config))
		},
		Template:         &x509.CertificateRequest{Subject: *subject(member.Node)},
		SignerName:       certificatesv1.KubeAPIServerClientKubeletSignerName,
		GetUsages:        certificate.DefaultKubeletClientGetUsages,
		CertificateStore: store,
		Name:             "node",
	})
	if err != nil {
		return fmt.Errorf("renew certificate: %w", err)
	}
	manager.Start()
	defer manager.Stop()
	watch(ctx, manager, log)
	return nil
}

const (
	lookPeriod = time.Hour
	// warnBefore is how long before its end a certificate that couldn't be
	// renewed is worth a warning. Renewal begins when a third of it is left.
	warnBefore = 5 * 24 * time.Hour
)

// watch warns of a certificate that ends soon: the manager logs nothing of it.
func watch(ctx context.Context, manager certificate.Manager, log *slog.Logger) {
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		if c := manager.Current(); c != nil && c.Leaf != nil && time.Until(c.Leaf.NotAfter) < warnBefore {
			log.Warn("this machine's certificate ends soon and couldn't be renewed yet", "ends", c.Leaf.NotAfter)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Dir returns the directory of the machine that a kubeconfig belongs to; false
// if Join didn't write it.
func Dir(kubeconfig string) (string, bool) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return "", false
	}
	for _, user := range config.AuthInfos {
		if strings.HasPrefix(filepath.Base(user.ClientCertificate), pairName+"-") {
			return filepath.Dir(filepath.Dir(user.ClientCertificate)), true
		}
	}
	return "", false
}
