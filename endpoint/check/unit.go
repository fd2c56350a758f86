package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// stoppedError is an answer that leaves no doubt: nobody serves.
type stoppedError string

func (e stoppedError) Error() string { return string(e) }

// askUnit asks systemd for the state of a unit: active is good.
func askUnit(ctx context.Context, s *Spec, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	unit := s.Command[0]
	command := exec.CommandContext(ctx, "systemctl", "is-active", "--", unit)
	command.WaitDelay = time.Second
	var out bytes.Buffer
	command.Stdout = &out
	err := command.Run()
	var exit *exec.ExitError
	state, _, _ := strings.Cut(strings.TrimSpace(out.String()), "\n")
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("ask systemd for %s: %w", unit, ctx.Err())
	case !errors.As(err, &exit):
		return unexpectedError("systemd can't be asked: " + err.Error())
	case state == "":
		return unexpectedError("systemd doesn't answer")
	}
	return stoppedError("unit " + unit + " is " + state)
}
