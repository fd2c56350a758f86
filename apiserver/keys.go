package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/apiserver/storage"
)

// checkKeys refuses to start with a store whose keys aren't all there: others would be
// made in their place, machines and tokens would be strangers, and Secrets unreadable.
// It changes nothing.
func (c *Config) checkKeys() error {
	if !storage.HasStore(c.etcdDir()) {
		return nil
	}
	var missing []string
	for _, name := range sharedFiles {
		if strings.HasPrefix(name, "etcd-ca") && c.membership == nil {
			continue // of no use to a server that is alone
		}
		info, err := os.Stat(filepath.Join(c.DataDir, "pki", name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, name)
		case err != nil:
			return fmt.Errorf("look for keys: %w", err)
		case info.Size() == 0:
			missing = append(missing, name+" (it is empty)")
		}
	}
	if len(missing) == 0 {
		return errors.Join(c.checkContent(), c.checkStore())
	}
	return fmt.Errorf("%s has a store, and in %s there is no %s: restore it from a backup of that machine, or from another server of the cluster (nothing was changed)",
		c.etcdDir(), filepath.Join(c.DataDir, "pki"), strings.Join(missing, ", no "))
}

// checkContent refuses files of keys that are damaged, or that don't belong together.
func (c *Config) checkContent() error {
	damaged := func(file string, err error) error {
		return fmt.Errorf("%w; restore %s from a backup of that machine, or from another server of the cluster (nothing was changed)", err, file)
	}
	dir := filepath.Join(c.DataDir, "pki")
	for _, name := range pki.Rotated {
		if name == pki.PeersName && c.membership == nil {
			continue
		}
		if _, err := pki.OpenRotation(dir, name); err != nil {
			return damaged(filepath.Join(dir, name+".*"), err)
		}
	}
	if _, err := storage.KeyNames(EncryptionKeys(c.DataDir)); err != nil {
		return damaged(EncryptionKeys(c.DataDir), err)
	}
	return nil
}

// checkStore refuses a store of which a file is missing or damaged.
func (c *Config) checkStore() error {
	err := storage.CheckFiles(c.etcdDir())
	var damaged *storage.DamagedError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &damaged):
		return err
	case c.membership != nil:
		return fmt.Errorf("%w: on another server of the cluster, remove this one; then move %s away and join again, or restore it as a whole from a backup of this machine (nothing was changed)", err, c.DataDir)
	}
	return fmt.Errorf("%w: move %s away and restore a snapshot with `fairway snapshot restore`, or restore it as a whole from a backup of this machine (nothing was changed)", err, c.etcdDir())
}

// checkPlace refuses to go on without what a server of a cluster remembers of that, or
// with half of a store.
func (c *Config) checkPlace(m *membership) error {
	ofCluster, err := exists(peerFiles(c.DataDir).CertFile)
	if err != nil {
		return err
	}
	if m == nil && ofCluster && storage.HasStore(c.etcdDir()) {
		return fmt.Errorf("%s is a server's of a cluster, and %s isn't there: restore it from a backup of that machine; or remove the server on another one, move %[1]s away and join again (nothing was changed)", c.DataDir, membershipFile(c.DataDir))
	}
	database := filepath.Join(c.etcdDir(), "member", "snap", "db")
	half, err := exists(database)
	if err != nil {
		return err
	}
	if half && !storage.HasStore(c.etcdDir()) {
		return fmt.Errorf("%s is there, and the log in %s isn't: restore both from a backup; or move %s away and restore a snapshot (nothing was changed)", database, filepath.Join(c.etcdDir(), "member", "wal"), c.etcdDir())
	}
	return nil
}

func exists(file string) (bool, error) {
	_, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for what a server keeps: %w", err)
	}
	return true, nil
}

// secretsCheck is the name of a check of /readyz.
const secretsCheck = "secrets"

// secretsPeriod is how long what was found of Secrets' keys is believed.
const secretsPeriod = time.Minute

// secretKeys looks whether the server has the keys of all Secrets in the store.
type secretKeys struct {
	etcd *clientv3.Client
	file string

	mu      sync.Mutex
	checked time.Time
	found   error
}

// check returns an error if there is a Secret that can't be decrypted.
func (k *secretKeys) check(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.checked) < secretsPeriod {
		return k.found
	}
	unknown, err := storage.UnknownKeys(ctx, k.etcd, k.file, rotations)
	if err != nil {
		return err
	}
	k.checked, k.found = time.Now(), nil
	for name, count := range unknown {
		k.found = errors.Join(k.found, fmt.Errorf("%d Secrets (or authorities' keys) are encrypted with a key named %s that %s doesn't have: copy the file from a server that reads them, or from a backup", count, name, k.file))
	}
	return k.found
}

// checkSecrets refuses to start if there are Secrets that this server can't read, and has
// /readyz say so if there are later on.
func (s *Server) checkSecrets(ctx context.Context) (healthz.HealthChecker, error) {
	keys := &secretKeys{etcd: s.backend.Client.Client, file: EncryptionKeys(s.config.DataDir)}
	if err := storage.DespiteElections(ctx, "look for Secrets that can't be read", keys.check); err != nil {
		return nil, err
	}
	return healthz.NamedCheck(secretsCheck, func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), etcdTimeout)
		defer cancel()
		return keys.check(ctx)
	}), nil
}
