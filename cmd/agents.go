package cmd

import (
	"context"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// agents asks the agents that can be reached from this machine.
func (f *objectFlags) agents(ctx context.Context) []agentlink.Found {
	if len(f.files) > 0 {
		return nil
	}
	patterns := f.sockets
	if len(patterns) == 0 {
		patterns = []string{filepath.Join(kernel.DefaultStateDir, agentlink.SocketName)}
		if dir := f.labDir(); dir != "" {
			patterns = []string{filepath.Join(dir, "*", agentlink.SocketName)}
		}
	}
	return agentlink.Find(ctx, patterns...)
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

// asker asks the agents that find finds, once something is asked.
func (f *objectFlags) asker(ctx context.Context, find func() []agentlink.Found) explain.Asker {
	if len(f.files) > 0 {
		return nil
	}
	return func(node string, keys []model.Key, from explain.Source) (explain.View, error) {
		agent := agentlink.Of(find(), node)
		if agent == nil {
			return explain.View{}, explain.ErrNoAgent
		}
		return agent.Decide(ctx, keys, from)
	}
}
