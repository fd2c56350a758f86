// Command checker reads a history of reads and writes, as JSON, and says whether
// clients of one store can have been told that: it ends with 1 if not.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

func main() {
	var history []Operation
	if err := json.NewDecoder(os.Stdin).Decode(&history); err != nil {
		fmt.Fprintln(os.Stderr, "read the history:", err)
		os.Exit(2)
	}
	if err := check(history, 2*time.Minute); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// check says what is wrong with a history.
func check(history []Operation, limit time.Duration) error {
	switch porcupine.CheckOperationsTimeout(numbers, bounded(history), limit) {
	case porcupine.Illegal:
		return errors.New("the history isn't linearizable: an acknowledged write was lost, or a read was stale")
	case porcupine.Unknown:
		return errors.New("the history couldn't be checked in time")
	}
	return nil
}
