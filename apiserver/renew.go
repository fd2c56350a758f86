package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/server/options"

	"github.com/fairway-net/fairway/apiserver/pki"
)

const (
	// renewPeriodOfCertificates is how often a server looks at its certificates.
	renewPeriodOfCertificates = 12 * time.Hour
	// warnBefore is how long before the end of a certificate that nothing renews by
	// itself, such as an authority's, the server begins to warn.
	warnBefore = 30 * 24 * time.Hour
)

// issueServing issues the serving certificate into a file, from which the
// server reads it again whenever it changes.
func (s *Server) issueServing() (options.CertKey, error) {
	ips, names := s.config.subjectNames(s.allocator.First())
	pair, err := s.authorities.Servers.Server("fairway-apiserver", ips, names)
	if err != nil {
		return options.CertKey{}, err
	}
	return servingFiles(s.config.DataDir), pair.WriteFile(servingFiles(s.config.DataDir).CertFile)
}

// servingFiles is where the serving certificate and its key are: in one file, so
// that nobody reads a certificate with the key of another.
func servingFiles(dataDir string) options.CertKey {
	file := filepath.Join(dataDir, "pki", "serving.pem")
	return options.CertKey{CertFile: file, KeyFile: file}
}

// peerFiles are what a server of a cluster shows the others' etcd, which reads
// them anew with each connection: one file, for the same reason.
func peerFiles(dataDir string) options.CertKey {
	file := filepath.Join(dataDir, "pki", "peer.pem")
	return options.CertKey{CertFile: file, KeyFile: file}
}

// renewCertificates renews the server's own certificates in time, and warns of
// authorities that end, until ctx is done.
func (s *Server) renewCertificates(ctx context.Context) {
	tick := time.NewTicker(renewPeriodOfCertificates)
	defer tick.Stop()
	for {
		if err := s.renewDue(time.Now()); err != nil {
			slog.Warn("certificates could not be renewed; trying again", "retry-in", renewPeriodOfCertificates, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ending is a certificate that nothing renews by itself.
type ending struct {
	file string
	at   time.Time
}

// endingSoon are the certificates that end within warnBefore: authorities, and those
// in files of the user's, of which "" is none.
func (s *Server) endingSoon(now time.Time, files ...string) (soon []ending, err error) {
	dir := filepath.Join(s.config.DataDir, "pki")
	all := []ending{
		{filepath.Join(dir, "ca.crt"), s.authorities.Servers.NotAfter()},
		{filepath.Join(dir, "client-ca.crt"), s.authorities.Clients.NotAfter()},
		{filepath.Join(dir, "etcd-ca.crt"), s.authorities.Peers.NotAfter()},
	}
	for _, file := range files {
		if file == "" {
			continue
		}
		cert, readErr := readCertificate(file)
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		all = append(all, ending{file, cert.NotAfter})
	}
	return slices.DeleteFunc(all, func(e ending) bool { return e.at.Sub(now) >= warnBefore }), err
}

// renewDue renews the certificates of which less than a third is left, and warns of
// those that it can't renew.
func (s *Server) renewDue(now time.Time) error {
	soon, err := s.endingSoon(now, s.config.EtcdCAFile, s.config.EtcdCertFile)
	if err != nil {
		return err
	}
	for _, e := range soon {
		slog.Warn("certificate expires soon: see docs/how-to/operating.md, Certificates", "file", e.file, "expires", e.at.Format(time.DateOnly))
	}
	cert, err := readCertificate(servingFiles(s.config.DataDir).CertFile)
	if err != nil {
		return err
	}
	if cert.NotAfter.Sub(now) > pki.LeafLife/3 {
		return nil
	}
	if _, err := s.issueServing(); err != nil {
		return err
	}
	if s.config.membership != nil {
		if err := s.issuePeer(); err != nil {
			return err
		}
	}
	return s.writeAdminKubeconfig()
}
