package rights

import (
	"context"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// NodePrefix is how the user names of machines begin; the name of their Node follows.
const NodePrefix = "system:node:"

// NodeName returns the Node whose machine the user is. A member of
// system:nodes without a proper name is no machine.
func NodeName(u user.Info) (string, bool) {
	name, found := strings.CutPrefix(u.GetName(), NodePrefix)
	return name, found && name != ""
}

// allowedToNodes is compared with every request of every node.
var allowedToNodes = nodeRules()

// authorizeNode decides for members of system:nodes, finally: a role that is
// bound to them gives them nothing.
func authorizeNode(ctx context.Context, a authorizer.Attributes, passwords *PeerSecrets) (authorizer.Decision, string, error) {
	node, ok := NodeName(a.GetUser())
	if !ok {
		return authorizer.DecisionDeny, "a member of system:nodes must be named " + NodePrefix + "NAME", nil
	}
	if token, err := passwords.holdsToken(ctx, a); token || err != nil {
		return authorizer.DecisionDeny, "a node reads no ServiceAccount's token", err
	}
	for i := range allowedToNodes {
		r := &allowedToNodes[i]
		if allows(&r.PolicyRule, a) && (r.only == nil || r.only(node, a)) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	if readsPassword(a) {
		referred, err := passwords.refer(ctx, a.GetName())
		switch {
		case err != nil:
			return authorizer.DecisionDeny, "", err
		case referred:
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, "no BGPPeer refers to this Secret", nil
	}
	return authorizer.DecisionDeny, "a node may read what its agent needs and write its own objects only", nil
}
