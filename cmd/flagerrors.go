package cmd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says of a flag that can't be read what its value should be.
func flagError(c *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return fmt.Errorf("%w: see %s --help", err, c.CommandPath())
	}
	flag, cause := invalid.GetFlag(), invalid.Unwrap()
	name := "--" + flag.Name
	if wanted := wantedValue(flag, cause); wanted != "" {
		return fmt.Errorf("%s: %q is not %s", name, invalid.GetValue(), wanted)
	}
	if cause == nil {
		return err
	}
	return fmt.Errorf("%s: %w", name, cause)
}

// wantedValue is what a flag takes; "" if its own error says so.
func wantedValue(flag *pflag.Flag, cause error) string {
	var number *strconv.NumError
	isNumber := errors.As(cause, &number)
	tooLarge := isNumber && errors.Is(number, strconv.ErrRange)
	switch kind := flag.Value.Type(); {
	case kind == "portRange":
		return "a range of ports such as 30000-32767"
	case kind == "bool":
		return "true or false"
	case kind == "duration" || cause != nil && strings.HasPrefix(cause.Error(), "time: "):
		return "a time such as 30s, 5m or 1h"
	case tooLarge && strings.Contains(flag.Name, "port"):
		return "a port: those end at 65535"
	case tooLarge:
		return "a number in range"
	case isNumber && strings.HasPrefix(kind, "uint"):
		return "a whole number from 0 on"
	case isNumber && kind == "ints":
		return "a list of whole numbers such as 1,10"
	case isNumber:
		return "a number"
	}
	return ""
}

// sayUsage has commands that get too many arguments, or too few, say how they
// are used.
func sayUsage(c *cobra.Command) {
	for _, sub := range c.Commands() {
		sayUsage(sub)
	}
	if c.Args == nil || c.DisableFlagParsing {
		return
	}
	check := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return fmt.Errorf("%s: %s: use it as %s", c.CommandPath(), countOf(args), c.UseLine())
		}
		return nil
	}
}

func countOf(args []string) string {
	switch len(args) {
	case 0:
		return "an argument is missing"
	case 1:
		return fmt.Sprintf("the argument %q doesn't fit", args[0])
	}
	return fmt.Sprintf("%d arguments don't fit", len(args))
}
