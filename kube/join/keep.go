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

	"github.com/fairway-net/fairway/internal/machineuser"
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
	m := &machine{dir: dir, node: member.Node, config: config, store: store, log: log}
	for ctx.Err() == nil {
		manager, err := certificate.NewManager(&certificate.Config{
			ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) {
				return kubernetes.NewForConfig(rest.CopyConfig(config))
			},
			Template:         &x509.CertificateRequest{Subject: *subject(machineuser.User{Node: member.Node})},
			SignerName:       certificatesv1.KubeAPIServerClientKubeletSignerName,
			GetUsages:        certificate.DefaultKubeletClientGetUsages,
			CertificateStore: store,
			Name:             "node",
		})
		if err != nil {
			return fmt.Errorf("renew certificate: %w", err)
		}
		manager.Start()
		watch(ctx, manager.Current, m.follow, log)
		manager.Stop()
	}
	return nil
}

// LookPeriod is how often a machine looks at its certificate, and asks what the servers'
// authorities are.
var LookPeriod = 10 * time.Minute

const (
	// warnBefore is how long before its end a certificate that couldn't be
	// renewed is worth a warning. Renewal begins when a third of it is left.
	warnBefore = 5 * 24 * time.Hour
)

// watch looks at the certificate until ctx is done, follow has renewed it, or renewing it
// is overdue: the manager waits by a clock that stands still while the machine is suspended, and
// logs nothing. A new manager renews at once what is due.
func watch(ctx context.Context, current func() *tls.Certificate, follow func(context.Context) bool, log *slog.Logger) {
	tick := time.NewTicker(LookPeriod)
	defer tick.Stop()
	for {
		overdue := false
		if c := current(); c != nil && c.Leaf != nil {
			overdue = warn(c.Leaf, time.Now(), log)
		}
		if follow(ctx) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if overdue {
			return
		}
	}
}

// warn says that a certificate ends soon, or has ended, and whether it should have
// been renewed by now.
func warn(c *x509.Certificate, now time.Time, log *slog.Logger) (overdue bool) {
	left, life := c.NotAfter.Sub(now), c.NotAfter.Sub(c.NotBefore)
	switch {
	case left <= 0:
		log.Warn("this machine's certificate has expired: run `fairway leave`, and `fairway join` with a new token", "expires", c.NotAfter)
	case left < warnBefore:
		log.Warn("this machine's certificate expires soon and could not be renewed yet", "expires", c.NotAfter)
	}
	return left < life/12 // the manager begins when 30 to 10 % are left
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
