package services

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/examine"
	"github.com/fairway-net/fairway/diagnose/overview"
)

func Status() *cobra.Command {
	var source collect.Source
	var watch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show nodes, Services, addresses and problems on one screen",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !watch {
				return status(cmd.Context(), &source, cmd.OutOrStdout())
			}
			return watchStatus(cmd.Context(), &source, cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&source.Kubeconfig, "kubeconfig", "", collect.KubeconfigHelp)
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every two seconds")
	return c
}

// watchPeriod is how often --watch reads everything again.
const watchPeriod = 2 * time.Second

// watchStatus shows the screen again and again. An API that doesn't answer for a
// while is said in its place.
func watchStatus(ctx context.Context, source *collect.Source, out io.Writer) error {
	const clearScreen = "\x1b[H\x1b[2J"
	for {
		if _, err := fmt.Fprintln(out, clearScreen+time.Now().Format(time.TimeOnly)); err != nil {
			return err
		}
		if err := status(ctx, source, out); err != nil && ctx.Err() == nil {
			fmt.Fprintln(out, "the API doesn't answer:", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPeriod):
		}
	}
}

// status writes the screen.
func status(ctx context.Context, source *collect.Source, out io.Writer) error {
	in, err := examine.Overview(ctx, source)
	if err != nil {
		return err
	}
	return overview.Write(out, in)
}
