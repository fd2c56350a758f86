//go:build !agentonly

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairway-net/fairway/agent/cleanup"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/agent/member"
	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/balance"
	"github.com/fairway-net/fairway/kube/credentials"
	"github.com/fairway-net/fairway/kube/join"
	"github.com/fairway-net/fairway/kube/lastknown"
)

func Leave() *cobra.Command {
	options := kernel.Options{}
	var dir string
	c := &cobra.Command{
		Use:   "leave",
		Short: "Undo join: stop the agent if a unit runs it, delete this machine's Node and certificate, and what is in the kernel",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return leave(cmd.Context(), dir, options, cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&dir, "data-dir", credentials.NodeDir, "join's --data-dir")
	c.Flags().StringVar(&options.StateDir, "state-dir", kernel.DefaultStateDir, "the agent's --state-dir")
	config.AddCgroup(c.Flags(), &options.Cgroup)
	return c
}

// leave goes on when no server answers: the machine leaves all the same, and
// its Node is for others to delete.
func leave(ctx context.Context, dir string, options kernel.Options, out io.Writer) error {
	joined, err := join.Member(dir)
	if err != nil {
		return err
	}
	if err := removeAgentUnit(); err != nil {
		return err
	}
	// A living agent would put everything back.
	if named, err := cleanup.RunningProxies(true); err != nil {
		return err
	} else if len(named) > 0 {
		return fmt.Errorf("this machine's agent runs: stop %s first", strings.Join(named, ", "))
	}
	if err := deleteMember(ctx, dir, joined.Node); err != nil {
		fmt.Fprintf(out, "node %s: couldn't be deleted (%v): `fairway kubectl delete node %s` on a server\n", joined.Node, err, joined.Node)
	} else {
		fmt.Fprintf(out, "node %s: deleted\n", joined.Node)
	}
	options.KeepKubeProxy = true
	err = (&cleanup.Job{Options: options, Out: out}).Run(ctx)
	for _, known := range []string{member.SettingsFile(dir), filepath.Join(dir, balance.FileName), lastknown.File(dir, joined.Node)} {
		if removeErr := os.Remove(known); removeErr != nil && !os.IsNotExist(removeErr) {
			err = errors.Join(err, removeErr)
		}
	}
	return errors.Join(err, join.Forget(dir))
}

// deleteMember deletes the machine's Node, with what belongs to it.
func deleteMember(ctx context.Context, dir, node string) error {
	api, err := balance.Config(join.Kubeconfig(dir))
	if err != nil {
		return err
	}
	said := &member.FirstWarning{}
	api.WarningHandler = said
	client, err := kube.Client(api)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{})
	if apierrors.IsUnauthorized(err) && said.Text != "" { // such as that the certificate was revoked
		return errors.New(said.Text)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	err = client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, node, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
