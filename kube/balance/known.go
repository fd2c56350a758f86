package balance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/internal/keptfile"
)

// FileName is what the file is called, beside the kubeconfig that it belongs to.
const FileName = "servers.json"

const (
	// forgetAfter is how long a server is remembered that isn't listed any more:
	// when most servers are lost, those listed last may be the next to go.
	forgetAfter = 7 * 24 * time.Hour
	// mostServers is how many are remembered.
	mostServers = 16
	// saveAgain is after what time the file says anew when servers were seen.
	saveAgain = time.Hour
)

// known is a server that has been listed.
type known struct {
	URL  string    `json:"url"`
	Seen time.Time `json:"seen"`
}

// Remember writes down that these servers are listed now, and keeps those that
// were lately.
func Remember(file string, servers []string, now time.Time) error {
	before, err := read(file)
	if err != nil {
		before = nil // one that can't be read is replaced
	}
	list, changed := merge(before, servers, now)
	if !changed && err == nil {
		return nil
	}
	data, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("remember API servers: %w", err)
	}
	if err := keptfile.Write(file, data, 0o600); err != nil {
		return fmt.Errorf("remember API servers: %w", err)
	}
	return nil
}

// merge puts the servers listed now first, and says whether that is news.
func merge(before []known, servers []string, now time.Time) ([]known, bool) {
	var out []known
	changed := false
	for _, s := range servers {
		i := slices.IndexFunc(before, func(k known) bool { return k.URL == s })
		if i < 0 || now.Sub(before[i].Seen) > saveAgain {
			changed = true
		}
		out = append(out, known{s, now})
	}
	for _, k := range before {
		switch {
		case slices.Contains(servers, k.URL):
		case now.Sub(k.Seen) > forgetAfter:
			changed = true
		default:
			out = append(out, k)
		}
	}
	return out[:min(len(out), mostServers)], changed
}

// read returns the servers in the file; none if there is no file.
func read(file string) ([]known, error) {
	data, err := os.ReadFile(filepath.Clean(file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read known API servers: %w", err)
	}
	var list []known
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read known API servers in %s: %w", file, err)
	}
	return slices.DeleteFunc(list, func(k known) bool { return !isServer(k.URL) }), nil
}

func isServer(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https" && u.Host != "" && strings.TrimSuffix(u.Path, "/") == ""
}
