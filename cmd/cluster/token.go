//go:build !agentonly

package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/apiserver/identity"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/balance"
	"github.com/fairway-net/fairway/kube/join"
)

// defaultTokenTime is how long a join token lasts if nobody says.
const defaultTokenTime = 24 * time.Hour

func Token() *cobra.Command {
	c := &cobra.Command{Use: "token", Short: "Create, list and delete the tokens with which machines and servers join; runs on a server", Args: cobra.NoArgs}
	kubeconfig := apiserver.AdminKubeconfig(apiserver.DefaultConfig().DataDir)
	c.PersistentFlags().StringVar(&kubeconfig, "kubeconfig", kubeconfig, "kubeconfig of an administrator")
	c.AddCommand(createTokenCommand(&kubeconfig), listTokensCommand(&kubeconfig), deleteTokenCommand(&kubeconfig))
	return c
}

func createTokenCommand(kubeconfig *string) *cobra.Command {
	var lasts time.Duration
	var description string
	var server bool
	c := &cobra.Command{
		Use: "create", Short: "Create a join token and print it; the whole join command goes to standard error", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lasts < 0 {
				return fmt.Errorf("--ttl: %s must not be negative; 0 is for ever", lasts)
			}
			config, client, err := adminClient(*kubeconfig)
			if err != nil {
				return err
			}
			create, use := createToken, "on other machines: "+joinBy+"\n"
			if server {
				create, use = createServerToken, "on one other server: echo %[2]s | sudo fairway server --bind-address 0.0.0.0 --join %[1]s --token-file -\n"
			}
			token, err := create(cmd.Context(), client, config, description, lasts)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), use, advertisedURL(cmd.Context(), client, config), token)
			fmt.Fprintln(cmd.OutOrStdout(), token)
			return nil
		},
	}
	c.Flags().DurationVar(&lasts, "ttl", defaultTokenTime, "how long machines may join with it; 0 is for ever")
	c.Flags().StringVar(&description, "description", "", "what it is for")
	c.Flags().BoolVar(&server, "server", false, "make a token by which one server joins, which is handed the keys of the cluster: keep it secret")
	return c
}

func adminClient(kubeconfig string) (*rest.Config, kubernetes.Interface, error) {
	config, err := balance.Config(kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	client, err := kube.Client(config)
	return config, client, err
}

// newToken makes a token that names the servers' certificate authority.
func newToken(config *rest.Config) (join.Token, error) {
	if err := rest.LoadTLSFiles(config); err != nil {
		return join.Token{}, fmt.Errorf("read certificate authority: %w", err)
	}
	hash, err := join.HashPEM(config.CAData)
	return join.NewToken(hash), err
}

func createToken(ctx context.Context, client kubernetes.Interface, config *rest.Config, description string, lasts time.Duration) (join.Token, error) {
	token, err := newToken(config)
	if err != nil {
		return token, err
	}
	_, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, token.Object(description, expiry(lasts)), metav1.CreateOptions{})
	if err != nil {
		return token, fmt.Errorf("store join token: %w", err)
	}
	return token, nil
}

// expiry is when something ends that lasts so long; the zero time is never.
func expiry(lasts time.Duration) time.Time {
	if lasts == 0 {
		return time.Time{}
	}
	return time.Now().Add(lasts)
}

// advertisedURL is where other machines reach the API, as its own Service says.
func advertisedURL(ctx context.Context, client kubernetes.Interface, config *rest.Config) string {
	slice, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil || len(slice.Endpoints) == 0 || len(slice.Ports) == 0 {
		return config.Host
	}
	address := slice.Endpoints[0].Addresses[0]
	if slice.AddressType == "IPv6" {
		address = "[" + address + "]"
	}
	return fmt.Sprintf("https://%s:%d", address, *slice.Ports[0].Port)
}

// joinBy is the command by which a machine joins a server at an address with a token.
// The token is no argument of it: every user can read those.
const joinBy = "echo %[2]s | sudo fairway join %[1]s --token-file -"

// joinLine says how other machines join, if they can reach the server. At a terminal
// that is the whole command, with a token; a log, which is kept and read by others,
// gets no token.
func joinLine(out io.Writer) func(context.Context, *apiserver.Server) (string, error) {
	return func(ctx context.Context, server *apiserver.Server) (string, error) {
		if !server.OpenToOthers() {
			return "", nil
		}
		if terminal, ok := out.(*os.File); !ok || !join.IsTerminal(terminal) {
			return "; to join other machines: fairway token create", nil
		}
		config, client, err := adminClient(server.AdminKubeconfig())
		if err != nil {
			return "", err
		}
		token, err := createToken(ctx, client, config, "printed at the server's start", defaultTokenTime)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("; on other machines: "+joinBy, advertisedURL(ctx, client, config), token), nil
	}
}

func listTokensCommand(kubeconfig *string) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List join tokens, without their secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, client, err := adminClient(*kubeconfig)
			if err != nil {
				return err
			}
			list, err := client.CoreV1().Secrets(metav1.NamespaceSystem).List(cmd.Context(), metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
			if err != nil {
				return fmt.Errorf("list join tokens: %w", err)
			}
			servers, err := serverTokens(cmd.Context(), client)
			if err != nil {
				return err
			}
			return printTokens(cmd.OutOrStdout(), list.Items, servers)
		},
	}
}

func printTokens(out io.Writer, machines []corev1.Secret, servers []identity.ServerToken) error {
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "ID\tFOR\tEXPIRES\tDESCRIPTION")
	for _, s := range machines {
		at, err := time.Parse(time.RFC3339, string(s.Data["expiration"]))
		expires := saysExpiry(at)
		if err != nil && len(s.Data["expiration"]) > 0 {
			expires = string(s.Data["expiration"])
		}
		fmt.Fprintf(table, "%s\tmachines\t%s\t%s\n", s.Data["token-id"], expires, s.Data["description"])
	}
	for _, s := range servers {
		if s.Holder != "" {
			s.Description = strings.TrimPrefix(s.Description+", used by "+s.Holder, ", ")
		}
		fmt.Fprintf(table, "%s\tservers\t%s\t%s\n", s.ID, saysExpiry(s.Expires), s.Description)
	}
	return table.Flush()
}

func saysExpiry(at time.Time) string {
	switch {
	case at.IsZero():
		return "never"
	case time.Now().After(at):
		return at.UTC().Format(time.RFC3339) + " (expired)"
	}
	return at.UTC().Format(time.RFC3339)
}

func deleteTokenCommand(kubeconfig *string) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Short: "Delete a join token; machines that joined with it stay", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, client, err := adminClient(*kubeconfig)
			if err != nil {
				return err
			}
			id := args[0]
			for _, parse := range []func(string) (join.Token, error){join.ParseToken, join.ParseServerToken} {
				if token, err := parse(id); err == nil {
					id = token.ID
				}
			}
			if deleted, err := deleteServerToken(cmd.Context(), client, id); err != nil || deleted {
				if err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "server token %s deleted\n", id)
				}
				return err
			}
			if err := client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(cmd.Context(), join.SecretPrefix+id, metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("delete join token %s: %w", id, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "join token %s deleted\n", id)
			return nil
		},
	}
}
