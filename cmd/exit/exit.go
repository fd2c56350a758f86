// Package exit is how a command ends its process with a code of its own.
package exit

import "fmt"

// Error ends the process with a code of its own, and without a message if it
// wraps no error.
type Error struct {
	Code int
	Err  error
}

// Error implements error.
func (e Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap is what it wraps.
func (e Error) Unwrap() error { return e.Err }
