package rights

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const (
	// JoiningServersGroup is whoever shows a server token. It may do one thing:
	// ask to join, at JoinPath.
	JoiningServersGroup = "system:fairway:joining-servers"
	// JoinPath is where a server asks to join.
	JoinPath = "/fairway/servers/join"
)

// New returns the server's authorizer. Members of system:masters may do
// everything. Nodes are held to their allow-list, whatever roles are bound to
// them or to a group they are in, and to the Secrets in passwords; gateways to theirs,
// and to what is referred. Everybody else has what roles give them.
func New(roles *RBAC, passwords *PeerSecrets, referred *GatewayReferences) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		groups := a.GetUser().GetGroups()
		switch {
		case slices.Contains(groups, JoiningServersGroup):
			if !a.IsResourceRequest() && a.GetPath() == JoinPath && a.GetVerb() == "post" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionDeny, "a server token only lets a server join", nil
		case slices.Contains(groups, user.NodesGroup):
			return authorizeNode(ctx, a, passwords)
		case slices.Contains(groups, GatewaysGroup):
			return authorizeGateway(ctx, a, referred)
		case slices.Contains(groups, user.SystemPrivilegedGroup):
			return authorizer.DecisionAllow, "", nil
		case !a.IsResourceRequest() && a.GetVerb() == "get" && slices.Contains(healthURLs, a.GetPath()):
			// As kube-apiserver does (--authorization-always-allow-paths): how the server is
			// can be asked before the roles are there.
			return authorizer.DecisionAllow, "", nil
		}
		return roles.Authorize(ctx, a)
	})
}
