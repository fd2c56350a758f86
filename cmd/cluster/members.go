//go:build !agentonly

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/apiserver/identity"
	"github.com/fairway-net/fairway/kube/join"
)

func membersCommand() *cobra.Command {
	kubeconfig := apiserver.AdminKubeconfig(apiserver.DefaultConfig().DataDir)
	list := func(cmd *cobra.Command, _ []string) error {
		_, client, err := adminClient(kubeconfig)
		if err != nil {
			return err
		}
		data, err := client.CoreV1().RESTClient().Get().AbsPath(apiserver.MembersPath).DoRaw(cmd.Context())
		if err != nil {
			return fmt.Errorf("list servers: %w", err)
		}
		var members []apiserver.Member
		if err := json.Unmarshal(data, &members); err != nil {
			return fmt.Errorf("list servers: %w", err)
		}
		return printMembers(cmd.OutOrStdout(), members)
	}
	c := &cobra.Command{Use: "members", Short: "List and remove the servers of a cluster; runs on any of its servers", Args: cobra.NoArgs, RunE: list}
	c.PersistentFlags().StringVar(&kubeconfig, "kubeconfig", kubeconfig, "kubeconfig of an administrator")
	c.AddCommand(&cobra.Command{Use: "list", Short: "List the servers of a cluster", Args: cobra.NoArgs, RunE: list})
	c.AddCommand(&cobra.Command{
		Use: "remove NAME", Short: "Remove a server for good, such as a lost one", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, client, err := adminClient(kubeconfig)
			if err != nil {
				return err
			}
			err = client.CoreV1().RESTClient().Delete().AbsPath(apiserver.MembersPath).Param("name", args[0]).Do(cmd.Context()).Error()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "server %s removed; it has the keys of the cluster still: delete its data directory\n", args[0])
			return nil
		},
	})
	return c
}

func printMembers(out io.Writer, members []apiserver.Member) error {
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tROLE\tAPI\tPEER\tVERSION")
	for _, m := range members {
		api := m.URL
		if api == "" {
			api = "doesn't answer"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", m.Name, m.Role, api, orDash(m.PeerURL), orDash(m.Version))
	}
	return table.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// createServerToken makes a token by which a server joins. The server is told
// its hash only.
func createServerToken(ctx context.Context, client kubernetes.Interface, config *rest.Config, description string, lasts time.Duration) (join.Token, error) {
	token, err := newToken(config)
	if err != nil {
		return token, err
	}
	token.Server = true
	data, err := json.Marshal(identity.ServerToken{
		ID: token.ID, Hash: identity.HashServerToken(token.Bearer()), Description: description, Expires: expiry(lasts),
	})
	if err != nil {
		return token, fmt.Errorf("write server token: %w", err)
	}
	if err := client.CoreV1().RESTClient().Post().AbsPath(apiserver.ServerTokensPath).Body(data).Do(ctx).Error(); err != nil {
		return token, fmt.Errorf("store server token: %w", err)
	}
	return token, nil
}

func serverTokens(ctx context.Context, client kubernetes.Interface) ([]identity.ServerToken, error) {
	data, err := client.CoreV1().RESTClient().Get().AbsPath(apiserver.ServerTokensPath).DoRaw(ctx)
	if apierrors.IsNotFound(err) { // an older server, or somebody else's
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list server tokens: %w", err)
	}
	var tokens []identity.ServerToken
	if err := json.Unmarshal(data, &tokens); err != nil {
		return nil, fmt.Errorf("list server tokens: %w", err)
	}
	return tokens, nil
}

// deleteServerToken says whether there was one.
func deleteServerToken(ctx context.Context, client kubernetes.Interface, id string) (bool, error) {
	err := client.CoreV1().RESTClient().Delete().AbsPath(apiserver.ServerTokensPath, id).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete server token %s: %w", id, err)
	}
	return true, nil
}
