// Package manual writes the manual pages of all commands.
package manual

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/fairway-net/fairway/internal/version"
)

// Command writes the manual pages, for packages and for `fairway install`.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages of all commands to a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return Write(cmd.Root(), args[0])
		},
	}
}

// Write writes a page for each command. It bears the date of the commit, if
// Go recorded it, so that two builds of a release are the same.
func Write(root *cobra.Command, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make folder of manual pages: %w", err)
	}
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Source: "Fairway " + version.Version, Manual: "Fairway", Date: commitTime()}
	if err := doc.GenManTree(root, header, folder); err != nil {
		return fmt.Errorf("write manual pages: %w", err)
	}
	return nil
}

func commitTime() *time.Time {
	at := time.Unix(0, 0).UTC()
	if t, err := time.Parse(time.RFC3339, version.Setting("vcs.time")); err == nil {
		at = t
	}
	return &at
}
