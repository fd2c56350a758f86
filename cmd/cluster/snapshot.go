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
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"

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

func secretsCommand() *cobra.Command {
	var dataDir string
	var newKey, useNewKey bool
	c := &cobra.Command{Use: "secrets", Short: "Manage how Secrets are encrypted in the store", Args: cobra.NoArgs}
	rewrite := &cobra.Command{
		Use:   "rewrite",
		Short: "Write every Secret anew, encrypted with the first key of DATA-DIR/pki/secrets.keys",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case newKey:
				return addSecretsKey(dataDir, cmd.OutOrStdout())
			case useNewKey:
				return useSecretsKey(cmd.Context(), dataDir, cmd.OutOrStdout())
			}
			n, err := rewriteSecrets(cmd.Context(), dataDir)
			fmt.Fprintln(cmd.OutOrStdout(), n, "Secrets written anew.")
			return err
		},
	}
	rewrite.Flags().StringVar(&dataDir, "data-dir", apiserver.DefaultConfig().DataDir, "the server's data directory")
	rewrite.Flags().BoolVar(&newKey, "new-key", false, "only make a new key, for the server to use after a restart; in a cluster, for all servers to read with first")
	rewrite.Flags().BoolVar(&useNewKey, "use-new-key", false, "in a cluster whose servers all have the new key: only have this one write with it after a restart")
	rewrite.MarkFlagsMutuallyExclusive("new-key", "use-new-key")
	c.AddCommand(rewrite)
	return c
}

// addSecretsKey makes a new key. A server that is alone writes with it at once; those of
// a cluster must all be able to read what is written with it first.
func addSecretsKey(dataDir string, out io.Writer) error {
	file := apiserver.EncryptionKeys(dataDir)
	clustered, err := apiserver.IsOfCluster(dataDir)
	if err == nil {
		err = storage.AddEncryptionKey(file)
	}
	if err != nil {
		return err
	}
	if clustered {
		fmt.Fprintf(out, "A new key is the last one in %s. Copy the file to all servers, restart them one after the other, then run on each `fairway server secrets rewrite --use-new-key`.\n", file)
		return nil
	}
	if err := storage.UseLastEncryptionKey(file); err != nil {
		return err
	}
	fmt.Fprintf(out, "A new key is in %s. Restart the server, then run `fairway server secrets rewrite`.\n", file)
	return nil
}

// useSecretsKey has this server write with the new key, if all servers read with it.
func useSecretsKey(ctx context.Context, dataDir string, out io.Writer) error {
	file := apiserver.EncryptionKeys(dataDir)
	names, err := storage.KeyNames(file)
	if err != nil {
		return err
	}
	config, err := adminConfig(dataDir)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create API client: %w", err)
	}
	data, err := client.CoreV1().RESTClient().Get().AbsPath(apiserver.MembersPath).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("list servers: %w", err)
	}
	var members []apiserver.Member
	if err := json.Unmarshal(data, &members); err != nil {
		return fmt.Errorf("list servers: %w", err)
	}
	for _, m := range members {
		if !slices.Contains(m.SecretKeys, names[len(names)-1]) {
			return fmt.Errorf("server %s doesn't read with the last key of %s: copy the file there, and restart that server first (nothing was changed)", m.Name, file)
		}
	}
	if err := storage.UseLastEncryptionKey(file); err != nil {
		return err
	}
	fmt.Fprintln(out, "Restart this server. When all servers write with the new key, run `fairway server secrets rewrite` on one.")
	return nil
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

// rewriteSecrets writes each Secret as it is. The server skips writes that
// change nothing, except where the stored form is not what it would write now.
func rewriteSecrets(ctx context.Context, dataDir string) (int, error) {
	config, err := adminConfig(dataDir)
	if err != nil {
		return 0, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, fmt.Errorf("create API client: %w", err)
	}
	list, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list Secrets: %w", err)
	}
	for i, item := range list.Items {
		secrets := client.CoreV1().Secrets(item.Namespace)
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			secret, err := secrets.Get(ctx, item.Name, metav1.GetOptions{})
			if err == nil {
				_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
			}
			return err
		})
		if err != nil {
			return i, fmt.Errorf("rewrite Secret %s/%s: %w", item.Namespace, item.Name, err)
		}
	}
	return len(list.Items), nil
}
