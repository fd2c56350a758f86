package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// SnapshotStatus says what a snapshot holds.
type SnapshotStatus = snapshot.Status

// Snapshot writes everything that is stored to w, with a checksum at its end.
func (b *Backend) Snapshot(ctx context.Context, w io.Writer) error {
	reader, err := b.Client.Client.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("take snapshot: %w", err)
	}
	_, err = io.Copy(w, reader)
	if err = errors.Join(err, reader.Close()); err != nil {
		return fmt.Errorf("take snapshot: %w", err)
	}
	return nil
}

// ReadSnapshot reads and checks a snapshot.
func ReadSnapshot(file string) (SnapshotStatus, error) {
	status, err := snapshot.NewV3(zap.NewNop()).Status(file)
	if err != nil {
		return status, fmt.Errorf("read snapshot %s: %w", file, err)
	}
	return status, nil
}

// revisionsSkipped is by how much a restored store is ahead of its snapshot.
// Objects were written after the snapshot was taken; their revisions must not be
// given to others, because clients have seen them.
const revisionsSkipped = 1_000_000_000

// Restore makes the data directory of an embedded etcd, which must not exist,
// from a snapshot. Clients of the API list everything anew.
func Restore(file, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return fmt.Errorf("restore to %s: it exists; move it away first", dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("restore to %s: %w", dir, err)
	}
	peer := peerURL
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, Name: memberName, OutputDataDir: dir,
		PeerURLs: []string{peer}, InitialCluster: memberName + "=" + peer, InitialClusterToken: "fairway-" + uuid.NewString(),
		RevisionBump: revisionsSkipped, MarkCompacted: true,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("restore %s to %s: %w", file, dir, err), os.RemoveAll(dir))
	}
	return nil
}
