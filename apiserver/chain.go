package apiserver

import (
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/fairway-net/fairway/internal/tuning"
)

// handlerChain is the library's, with room on the stack where goroutines begin:
// the library serves a request by several, one for net/http, one for its
// timeout, one for the write itself (see creater and registry.REST).
func (s *Server) handlerChain(api http.Handler, c *genericapiserver.Config) http.Handler {
	l := newLongRunning(c.Authentication.Authenticator)
	s.longRunning = append(s.longRunning, l)
	inner := growStackForWrites(limitUsers(l.follow(api), s.spent, c.Serializer))
	return growStackForWrites(l.remember(genericapiserver.DefaultBuildHandlerChain(inner, c)))
}

// growStackForWrites grows the stack ahead of writes. Reads need less, and watches, which are
// reads, would keep it for as long as they last.
func growStackForWrites(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet {
			tuning.GrowStack()
		}
		next.ServeHTTP(w, req)
	})
}

// isLongRunning reports whether a request may take as long as it likes.
func isLongRunning(_ *http.Request, info *request.RequestInfo) bool {
	return info.Verb == "watch" || slices.Contains([]string{"attach", "exec", "log", "portforward", "proxy"}, info.Subresource)
}
