//go:build !agentonly

package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fairway-net/fairway/cmd/kubectl"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/lab"
)

func labKubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [--name LAB] COMMAND [ARGUMENT...]",
		Short:              "kubectl with a lab's kubeconfig",
		Long:               "kubectl, linked in, with a lab's kubeconfig. What comes after --name and its value is kubectl's.",
		DisableFlagParsing: true,
		ValidArgsFunction:  completeLabKubectl,
		RunE: func(c *cobra.Command, args []string) error {
			name, rest, err := labName(args)
			if err != nil {
				return err
			}
			if _, err := lab.Load(name); err != nil {
				return err
			}
			if err := os.Setenv("KUBECONFIG", lab.Kubeconfig(name)); err != nil {
				return fmt.Errorf("choose the lab's kubeconfig: %w", err)
			}
			return kubectl.Run(c.Context(), rest)
		},
	}
}

// labName takes a lab's name off the front of the arguments.
func labName(args []string) (string, []string, error) {
	if len(args) == 0 {
		return lab.NameOf(os.Getenv("KUBECONFIG")), nil, nil
	}
	if value, ok := strings.CutPrefix(args[0], "--name="); ok {
		return value, args[1:], nil
	}
	if args[0] != "--name" {
		return lab.NameOf(os.Getenv("KUBECONFIG")), args, nil
	}
	if len(args) < 2 {
		return "", nil, errors.New("--name: give the lab's name")
	}
	return args[1], args[2:], nil
}
