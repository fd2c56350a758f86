package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab/topology"
)

// stageName names the stages of this process, so that others can tell whether
// it is alive.
func stageName(n int64) string {
	return "conformance-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(n, 10)
}

// stageOf finds the stage's name and the process's id in the name of a network
// namespace.
var stageOf = regexp.MustCompile(`^fairway\.(conformance-(\d+)-\d+)\.`)

// removeDeadStages removes what processes left behind that were killed.
func removeDeadStages() error {
	names, err := netns.Names("fairway.conformance-")
	if err != nil {
		return fmt.Errorf("find stages of others: %w", err)
	}
	dead := map[string]bool{}
	for _, name := range names {
		match := stageOf.FindStringSubmatch(name)
		if match == nil {
			continue
		}
		if _, err := os.Stat(filepath.Join("/proc", match[2])); errors.Is(err, os.ErrNotExist) {
			dead[match[1]] = true
		}
	}
	var failed []error
	for stage := range dead {
		err := topology.Remove(stage)
		if err == nil {
			continue
		}
		if there, existsErr := topology.Exists(stage); there || existsErr != nil { // nobody else has removed it
			failed = append(failed, fmt.Errorf("remove the stage of a dead process: %w", errors.Join(err, existsErr)))
		}
	}
	return errors.Join(failed...)
}
