package collect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/model"
)

// mostTables is of how many agents the tables are read, where the API can't be.
const mostTables = 16

// orInForce takes the objects that were read from the API, or, if that failed, those that
// the agents of this machine or of the lab have in force. Where no agent answers, the error is
// that of the API.
func (s *Source) orInForce(ctx context.Context, read *explain.Objects, failed error) (*explain.Objects, error) {
	if failed == nil || len(s.Files) > 0 || ctx.Err() != nil || !s.mayAskInstead(failed) {
		return read, failed
	}
	s.noAPI = true // which needn't be asked for agents either
	return s.InForce(ctx, failed)
}

// WithoutAPI has agents asked that need no API to be reached.
func (s *Source) WithoutAPI() { s.noAPI = true }

// InForce takes what agents have in force. The error is that of the API if none answers.
func (s *Source) InForce(ctx context.Context, failed error) (*explain.Objects, error) {
	agents := s.Agents(ctx, "")
	if there := slices.DeleteFunc(slices.Clone(agents), func(a agentlink.Found) bool { return a.Err != nil }); len(there) > 0 {
		return tablesOf(ctx, there, failed)
	}
	for _, line := range agentlink.Missing(agents) {
		failed = errors.Join(failed, fmt.Errorf("and the agents: %s", line))
	}
	return nil, failed
}

// mayAskInstead reports whether agents may be asked instead of the API: not if what the
// user named isn't there.
func (s *Source) mayAskInstead(failed error) bool {
	var unusable errConfig
	return !errors.As(failed, &unusable) || clientcmd.IsEmptyConfig(unusable.error) && s.Kubeconfig == ""
}

// errConfig says that there is no way to the API.
type errConfig struct{ error }

// Unwrap is part of errors.
func (e errConfig) Unwrap() error { return e.error }

// Error says what to do about it.
func (e errConfig) Error() string {
	if clientcmd.IsEmptyConfig(e.error) {
		return "no API to ask: there is no kubeconfig; give --kubeconfig FILE, or -f MANIFESTS"
	}
	return "read kubeconfig: " + e.error.Error()
}

// tablesOf reads what agents have in force.
func tablesOf(ctx context.Context, agents []agentlink.Found, failed error) (*explain.Objects, error) {
	if len(agents) > mostTables {
		agents = agents[:mostTables]
	}
	read := make([]*model.Table, len(agents))
	failures := make([]error, len(agents))
	agentlink.Each(ctx, agents, func(i int) { read[i], failures[i] = agents[i].Table(ctx) })
	tables, served, why := map[string]*model.Table{}, map[string][]netip.Addr{}, failed.Error()
	for i, table := range read {
		if failures[i] == nil {
			tables[agents[i].Name()], served[agents[i].Name()] = table, agents[i].Status.Served
			why += "; " + heard(agents[i])
		}
	}
	if len(tables) == 0 {
		return nil, errors.Join(append([]error{failed}, failures...)...)
	}
	return explain.InForce(tables, served, why), nil
}

// heard says how old what an agent knows is.
func heard(a agentlink.Found) string {
	away := time.Duration(a.Status.APIAway * float64(time.Second))
	if away == 0 {
		return a.Name() + " hasn't missed it yet"
	}
	return fmt.Sprintf("%s heard it last %s ago", a.Name(), away.Round(time.Second))
}

// AddNodes adds the nodes whose agents answer, where the user may not list nodes.
func AddNodes(o *explain.Objects, find func() []agentlink.Found) {
	if o.NoNodes == "" {
		return
	}
	for _, a := range find() {
		if a.Err == nil {
			o.Nodes = append(o.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.Name()}})
		}
	}
}
