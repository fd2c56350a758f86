package cmd

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/reach"
	"github.com/fairway-net/fairway/internal/kernel"
)

// agents asks the agents of all nodes, or of one: those of this machine or of the lab
// in use by their sockets, and those elsewhere by way of the API, with the user's own
// rights. What is asked for by --agent-socket is all there is.
func (f *objectFlags) agents(ctx context.Context, only string) []agentlink.Found {
	if len(f.files) > 0 {
		return nil
	}
	if len(f.sockets) > 0 {
		return agentlink.FindNamed(ctx, f.sockets...)
	}
	here := f.agentsHere(ctx)
	if f.noAPI {
		return here
	}
	there, err := f.agentsElsewhere(ctx, func(node string) bool {
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

// agentsHere asks the agents of this machine, or of the lab in use.
func (f *objectFlags) agentsHere(ctx context.Context) []agentlink.Found {
	patterns := f.sockets
	if len(patterns) == 0 {
		patterns = []string{filepath.Join(kernel.DefaultStateDir, agentlink.SocketName)}
		if dir := f.labDir(); dir != "" {
			patterns = []string{filepath.Join(dir, "*", agentlink.SocketName)}
		}
	}
	list := agentlink.Find(ctx, patterns...)
	if f.labDir() != "" && len(f.sockets) == 0 {
		for i := range list { // also of one that doesn't answer
			list[i].Node = filepath.Base(filepath.Dir(list[i].Path))
		}
	}
	return list
}

// agentsElsewhere asks the agents of nodes by way of the API.
func (f *objectFlags) agentsElsewhere(ctx context.Context, but func(node string) bool) ([]agentlink.Found, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	asking := config
	if f.answers != nil {
		asking = f.answers.impatient(config)
	}
	client, err := kubernetes.NewForConfig(asking)
	if err != nil {
		return nil, err
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // the library logs how streams end
	return reach.Agents{Config: config, Client: client}.All(ctx, but)
}

// labsDir holds the state directories of labs: package lab's, which is not in every
// build.
const labsDir = kernel.DefaultStateDir + "/lab"

// labDir is the state directory of the lab that the kubeconfig in use is of; "" if
// it isn't a lab's.
func (f *objectFlags) labDir() string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	file := f.kubeconfig
	if file == "" {
		file = rules.GetDefaultFilename()
	}
	if own := ownKubeconfig(nil); f.kubeconfig == "" && own != "" {
		return ""
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil || !strings.HasPrefix(dir, labsDir+string(filepath.Separator)) {
		return ""
	}
	return dir
}

// asker asks the agents that find finds, once something is asked: all at the same time,
// since the question is the same for every node.
func (f *objectFlags) asker(ctx context.Context, find func() []agentlink.Found) explain.Asker {
	if len(f.files) > 0 {
		return nil
	}
	return agentlink.AskAllOnce(ctx, find)
}
