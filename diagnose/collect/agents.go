package collect

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/reach"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/kube/credentials"
)

// Agents asks the agents of all nodes, or of one: those of this machine or of the lab
// in use by their sockets, and those elsewhere by way of the API, with the user's own
// rights. What is asked for by --agent-socket is all there is.
func (s *Source) Agents(ctx context.Context, only string) []agentlink.Found {
	if len(s.Files) > 0 {
		return nil
	}
	if len(s.Sockets) > 0 {
		return agentlink.FindNamed(ctx, s.Sockets...)
	}
	here := s.AgentsHere(ctx)
	if s.noAPI {
		return here
	}
	there, err := s.agentsElsewhere(ctx, func(node string) bool {
		return only != "" && node != only || slices.ContainsFunc(here, func(a agentlink.Found) bool {
			return a.Name() == node && !errors.Is(a.Err, fs.ErrPermission)
		})
	})
	if err != nil {
		return here // there is no API to ask, or it doesn't let this user: only this machine is known
	}
	if len(there) > 0 { // who may not use the socket may ask by way of the API
		here = slices.DeleteFunc(here, func(a agentlink.Found) bool { return errors.Is(a.Err, fs.ErrPermission) })
	}
	return append(here, there...)
}

// AgentsHere asks the agents of this machine, or of the lab in use.
func (s *Source) AgentsHere(ctx context.Context) []agentlink.Found {
	list := agentlink.Find(ctx, s.socketPatterns()...)
	if s.labDir() != "" && len(s.Sockets) == 0 {
		for i := range list { // also of one that doesn't answer
			list[i].Node = filepath.Base(filepath.Dir(list[i].Path))
		}
	}
	return list
}

// socketPatterns are the sockets of the agents of this machine, or of the lab in use.
func (s *Source) socketPatterns() []string {
	if len(s.Sockets) > 0 {
		return s.Sockets
	}
	if dir := s.labDir(); dir != "" {
		return []string{filepath.Join(dir, "*", agentlink.SocketName)}
	}
	return []string{filepath.Join(kernel.DefaultStateDir, agentlink.SocketName)}
}

// agentsElsewhere asks the agents of nodes by way of the API.
func (s *Source) agentsElsewhere(ctx context.Context, but func(node string) bool) ([]agentlink.Found, error) {
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(s.WithFirstAnswerTimeout(config))
	if err != nil {
		return nil, err
	}
	return reach.Agents{Config: config, Client: client}.All(ctx, but)
}

// labsDir holds the state directories of labs: package lab's, which is not in every
// build.
const labsDir = kernel.DefaultStateDir + "/lab"

// labDir is the state directory of the lab that the kubeconfig in use is of; "" if
// it isn't a lab's.
func (s *Source) labDir() string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	file := s.Kubeconfig
	if file == "" {
		file = rules.GetDefaultFilename()
	}
	if own := credentials.OfServer(); s.Kubeconfig == "" && own != "" {
		return ""
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil || !strings.HasPrefix(dir, labsDir+string(filepath.Separator)) {
		return ""
	}
	return dir
}

// Asker asks the agents that find finds, once something is asked: all at the same time,
// since the question is the same for every node.
func (s *Source) Asker(ctx context.Context, find func() []agentlink.Found) explain.Asker {
	if len(s.Files) > 0 {
		return nil
	}
	return agentlink.AskAllOnce(ctx, find)
}

// NodeOf is the node that a question is about; "" for all.
func NodeOf(q explain.Question, o *explain.Objects) string {
	if q.Node != "" {
		return q.Node
	}
	from, err := o.Locate(q.From, false)
	if err != nil {
		return ""
	}
	return from.Node
}

// IsHere reports whether this machine has an address of the node; of any if it is "".
func IsHere(o *explain.Objects, node string) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range list {
		own, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		for _, n := range o.Nodes {
			if (node == "" || n.Name == node) && slices.ContainsFunc(n.Status.Addresses, func(na corev1.NodeAddress) bool { return na.Address == own.Addr().String() }) {
				return true
			}
		}
	}
	return false
}
