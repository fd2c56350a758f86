package planes

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

// topologyName names the topologies of this process, so that others can tell whether
// it is alive.
func topologyName(n int64) string {
	return "conformance-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(n, 10)
}

// topologyOf finds the topology's name and the process's id in the name of a network
// namespace.
var topologyOf = regexp.MustCompile(`^fairway\.(conformance-(\d+)-\d+)\.`)

// removeDeadTopologies removes what processes left behind that were killed.
func removeDeadTopologies() error {
	names, err := netns.Names("fairway.conformance-")
	if err != nil {
		return fmt.Errorf("find topologies of others: %w", err)
	}
	dead := map[string]bool{}
	for _, name := range names {
		match := topologyOf.FindStringSubmatch(name)
		if match == nil {
			continue
		}
		if _, err := os.Stat(filepath.Join("/proc", match[2])); errors.Is(err, os.ErrNotExist) {
			dead[match[1]] = true
		}
	}
	var failed []error
	for topo := range dead {
		err := topology.Remove(topo)
		if err == nil {
			continue
		}
		if there, existsErr := topology.Exists(topo); there || existsErr != nil { // nobody else has removed it
			failed = append(failed, fmt.Errorf("remove the topology of a dead process: %w", errors.Join(err, existsErr)))
		}
	}
	return errors.Join(failed...)
}
