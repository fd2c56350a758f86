package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// publicPaths may be read without credentials: they tell machines that watch
// over the server how it is.
var publicPaths = []string{"/healthz", "/livez", "/readyz", "/version"}

const (
	nodesGroup = "system:nodes"
	nodePrefix = "system:node:"
)

// newAuthenticator accepts client certificates of our CA and listed tokens.
func newAuthenticator(clientCA dynamiccertificates.CAContentProvider, tokenFile string) (authenticator.Request, error) {
	requests := []authenticator.Request{newCertificates(clientCA.VerifyOptions)}
	if tokenFile != "" {
		tokens, err := tokenfile.NewCSV(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("read token file %s: %w", tokenFile, err)
		}
		requests = append(requests, bearertoken.New(tokens))
	}
	known := group.NewAuthenticatedGroupAdder(union.New(requests...))
	conditions := make([]apiserverapi.AnonymousAuthCondition, len(publicPaths))
	for i, path := range publicPaths {
		conditions[i].Path = path
	}
	return union.New(known, anonymous.NewAuthenticator(conditions)), nil
}

// authorize allows administrators everything, nodes what an agent needs, and
// whoever is known to find out what is served. There is no RBAC.
func authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	groups := a.GetUser().GetGroups()
	switch {
	case slices.Contains(groups, user.SystemPrivilegedGroup):
		return authorizer.DecisionAllow, "", nil
	case !a.IsResourceRequest() && isRead(a.GetVerb()) && slices.Contains(publicPaths, a.GetPath()):
		return authorizer.DecisionAllow, "", nil
	case !a.IsResourceRequest() && isRead(a.GetVerb()) && slices.Contains(groups, user.AllAuthenticated):
		if isDiscovery(a.GetPath()) {
			return authorizer.DecisionAllow, "", nil
		}
	case a.IsResourceRequest() && slices.Contains(groups, nodesGroup):
		if nodeMay(a) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "nodes may read everything but Secrets, and write Events, Leases, their own Node and the status of Pods and Services", nil
	}
	return authorizer.DecisionNoOpinion, "only members of system:masters may do this", nil
}

func isRead(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

func isDiscovery(path string) bool {
	for _, prefix := range []string{"/api", "/apis", "/openapi"} {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}

// nodeMay says whether a node may do something: its agent reads what there
// is and reports what it did.
func nodeMay(a authorizer.Attributes) bool {
	if isRead(a.GetVerb()) {
		return a.GetResource() != "secrets"
	}
	switch a.GetResource() {
	case "events", "leases":
		return a.GetVerb() != "deletecollection"
	case "nodes":
		own := a.GetName() == strings.TrimPrefix(a.GetUser().GetName(), nodePrefix)
		return own && a.GetVerb() != "delete" || a.GetVerb() == "create" && a.GetName() == ""
	case "pods", "services":
		return a.GetSubresource() == "status" && (a.GetVerb() == "update" || a.GetVerb() == "patch")
	}
	return false
}
