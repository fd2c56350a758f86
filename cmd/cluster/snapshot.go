//go:build !agentonly

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/apiserver/storage"
)

func snapshotCommand() *cobra.Command {
	var dataDir string
	c := &cobra.Command{Use: "snapshot", Short: "Save, inspect and restore what a server stores", Args: cobra.NoArgs}
	c.PersistentFlags().StringVar(&dataDir, "data-dir", apiserver.DefaultConfig().DataDir, "the server's data directory")
	c.AddCommand(&cobra.Command{
		Use:   "save FILE",
		Short: "Save what the running server stores; the keys in DATA-DIR/pki are not part of it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := saveSnapshot(cmd.Context(), dataDir, args[0]); err != nil {
				return err
			}
			return printSnapshot(cmd.OutOrStdout(), args[0])
		},
	}, &cobra.Command{
		Use:   "status FILE",
		Short: "Check a snapshot, and show what it contains",
		Args:  cobra.ExactArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return printSnapshot(cmd.OutOrStdout(), args[0]) },
	}, &cobra.Command{
		Use:   "restore FILE",
		Short: "Create a new store from a snapshot, while no server runs; DATA-DIR/etcd must not exist",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := storage.Restore(args[0], filepath.Join(dataDir, "etcd")); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Restored %s to %s. If %s is of another machine, copy its pki directory there before the server starts.\n", args[0], filepath.Join(dataDir, "etcd"), args[0])
			return nil
		},
	})
	return c
}

// adminConfig leads to the running server whose data directory this is.
func adminConfig(dataDir string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", apiserver.AdminKubeconfig(dataDir))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w (a server that has run with this --data-dir writes it)", apiserver.AdminKubeconfig(dataDir), err)
	}
	config.QPS = -1
	return config, nil
}

func saveSnapshot(ctx context.Context, dataDir, file string) error {
	config, err := adminConfig(dataDir)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("create API client: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+apiserver.SnapshotPath, nil)
	if err != nil {
		return fmt.Errorf("ask for snapshot: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask for snapshot: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("ask for snapshot: %s (a server with an etcd of its own is needed; for another etcd use etcdctl)", resp.Status), resp.Body.Close())
	}
	err = apiserver.WriteSnapshot(file, func(w io.Writer) error {
		_, err := io.Copy(w, resp.Body)
		return err
	})
	return errors.Join(err, resp.Body.Close())
}

func printSnapshot(out io.Writer, file string) error {
	status, err := storage.ReadSnapshot(file)
	if err != nil {
		return err
	}
	text, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	fmt.Fprintf(out, "%s\n", text)
	return nil
}
