// Command fairway-bench measures the program fairway that lies beside it: how soon
// changes are in force, what they cost, and the speed of the data planes.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/fairway-net/fairway/dataplane/userspace"
	"github.com/fairway-net/fairway/internal/cgroupsock"
)

// version is that of the program, set by the linker.
var version = "dev"

func main() {
	userspace.Main()  // returns unless this process is a relay
	cgroupsock.Main() // returns unless this process makes sockets
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	klog.SetLogger(logr.Discard()) // of the API's clients; their errors are returned
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fairway-bench:", err)
		stop()
		os.Exit(1)
	}
}

// common are the options of every measurement.
type common struct {
	fairway string
	verbose bool
}

func (c *common) log() *slog.Logger {
	level := slog.LevelInfo
	if c.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// program is the absolute path of the measured program.
func (c *common) program() (string, error) {
	if c.fairway == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find the own executable: %w", err)
		}
		c.fairway = filepath.Join(filepath.Dir(self), "fairway")
	}
	if _, err := os.Stat(c.fairway); err != nil {
		return "", fmt.Errorf("--fairway: %w", err)
	}
	return filepath.Abs(c.fairway)
}

func command() *cobra.Command {
	var c common
	root := runCommand(&c)
	root.SilenceErrors, root.SilenceUsage, root.Version = true, true, version
	root.PersistentFlags().StringVar(&c.fairway, "fairway", "", "the program to measure; the one beside this program without this")
	root.PersistentFlags().BoolVar(&c.verbose, "verbose", false, "log more")
	root.AddCommand(announceCommand(&c), gatewayCommand(&c), watchersCommand(&c), objectsCommand(), speakerCommand())
	return root
}
