package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/fairway-net/fairway/apiserver/identity"
	"github.com/fairway-net/fairway/apiserver/rights"
	"github.com/fairway-net/fairway/apiserver/storage"
)

const (
	// MembersPath is where administrators list the servers of a cluster, and
	// remove the one that the parameter "name" names.
	MembersPath = "/fairway/servers"
	// ServerTokensPath is the same for the tokens by which servers join.
	ServerTokensPath = "/fairway/server-tokens"
)

// Member is a server of a cluster.
type Member struct {
	Name string `json:"name"`
	// URL is where its API answers; "" while it doesn't.
	URL     string `json:"url,omitempty"`
	PeerURL string `json:"peerURL"`
	Version string `json:"version,omitempty"`
	// Role is "leader", "follower", "joining", "alone", or, while most of the
	// servers are away, "no leader".
	Role string `json:"role"`
	// SecretKeys are the names of the keys that it reads Secrets with, the one that it
	// writes with first.
	SecretKeys []string `json:"secretKeys,omitempty"`
	// Authorities are the keys of each authority that it uses, the one that signs first.
	Authorities map[string][]string `json:"authorities,omitempty"`
}

// serveMembers sets the paths up by which servers come and go.
func (s *Server) serveMembers() {
	mux := s.generic.Handler.NonGoRestfulMux
	mux.HandleFunc(rights.JoinPath, handle(s.postJoin))
	mux.HandleFunc(MembersPath, handle(s.members))
	mux.HandleFunc(TargetsPath, handle(s.targets))
	mux.HandleFunc(AuthoritiesPath, handle(s.serveAuthorities))
	mux.HandleFunc(ServerTokensPath, handle(s.serverTokens))
	mux.HandlePrefix(ServerTokensPath+"/", handle(s.removeServerToken))
}

// problem is an answer other than 200.
type problem struct {
	code int
	text string
}

func (p *problem) Error() string { return p.text }

func refuse(code int, format string, args ...any) error {
	return &problem{code, fmt.Sprintf(format, args...)}
}

// handle answers with what f returns, as JSON.
func handle(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		answer, err := f(req)
		code := http.StatusOK
		if err != nil {
			code = http.StatusInternalServerError
			if p, ok := errors.AsType[*problem](err); ok {
				code = p.code
			} else if storage.IsElection(err) {
				code = http.StatusServiceUnavailable // a server that joins asks again
			}
			answer = statusOf(code, metav1.StatusFailure, err.Error())
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			slog.Debug("an answer to a joining server could not be sent", "path", req.URL.Path, "error", err)
		}
	}
}

func statusOf(code int, status, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: status, Code: int32(code), Message: message}
}

var errMethod = refuse(http.StatusMethodNotAllowed, "this method is not for this path")

// postJoin announces a server that joins, and hands the keys of the cluster
// over to it.
func (s *Server) postJoin(req *http.Request) (any, error) {
	if req.Method != http.MethodPost {
		return nil, errMethod
	}
	if s.config.membership == nil {
		return nil, refuse(http.StatusConflict, "this server is alone: restart it with --cluster-init to let others join; it keeps what it has stored")
	}
	var wanted joinRequest
	if err := json.NewDecoder(http.MaxBytesReader(nil, req.Body, 1<<16)).Decode(&wanted); err != nil {
		return nil, refuse(http.StatusBadRequest, "read request: %v", err)
	}
	if problems := validation.IsDNS1123Subdomain(wanted.Name); len(problems) > 0 {
		return nil, refuse(http.StatusBadRequest, "server name %q: %s; choose one with --server-name", wanted.Name, problems[0])
	}
	who, _ := request.UserFrom(req.Context())
	id, ok := "", who != nil
	if ok {
		id, ok = strings.CutPrefix(who.GetName(), identity.ServerTokenUser)
	}
	if !ok {
		return nil, refuse(http.StatusForbidden, "servers join by a server token: `fairway token create --server` makes one")
	}
	if err := s.checkNewMember(wanted); err != nil {
		return nil, err
	}
	suits := Config{ServiceCIDRs: wanted.Wanted.ServiceCIDRs, NodePortRange: wanted.Wanted.NodePortRange}
	if err := suits.adopt(s.config.shared()); err != nil {
		return nil, refuse(http.StatusConflict, "%v", err)
	}
	// From here on the token is good for this server only, and the keys are handed over
	// once it has its place in the cluster.
	if err := provePlace(req.Context(), wanted); err != nil {
		return nil, refuse(http.StatusConflict, "%v", err)
	}
	if err := s.holdServerToken(req.Context(), id, wanted.Name+" at "+wanted.PeerURL); err != nil {
		return nil, err
	}
	reply := &joinReply{Files: map[string][]byte{}, Shared: s.config.shared()}
	var err error
	reply.InitialCluster, err = s.backend.AddLearner(req.Context(), wanted.Name, wanted.PeerURL)
	if errors.Is(err, storage.ErrBusy) {
		return nil, refuse(http.StatusServiceUnavailable, "%v (%s); if it never comes: fairway server members remove %[2]s", err, s.joining())
	}
	if err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "%v", err)
	}
	for _, name := range sharedFiles {
		data, err := os.ReadFile(filepath.Join(s.config.DataDir, "pki", name))
		if err != nil {
			return nil, fmt.Errorf("read what the servers have in common: %w", err)
		}
		reply.Files[name] = data
	}
	slog.Info("a server joins", "name", wanted.Name, "peer", wanted.PeerURL)
	return reply, nil
}

// joining names the server that is.
func (s *Server) joining() string {
	for _, m := range s.backend.Members() {
		if m.Learner {
			return memberName(m)
		}
	}
	return "unknown"
}

// memberName is what an administrator calls a member.
func memberName(m storage.MemberInfo) string {
	if m.Name == "" {
		return m.PeerURL
	}
	return m.Name
}

// checkNewMember refuses a server whose name or address another one has, or that
// the others can't reach from theirs.
func (s *Server) checkNewMember(wanted joinRequest) error {
	is4, err := isIPv4(wanted.PeerURL)
	if err != nil {
		return refuse(http.StatusBadRequest, "peer URL %q: %v", wanted.PeerURL, err)
	}
	if s.config.AdvertiseAddress.Is4() != is4 {
		return refuse(http.StatusConflict, "the servers of a cluster reach each other by one IP family, and this one is at %s: give an --advertise-address of that family", s.config.AdvertiseAddress)
	}
	for _, m := range s.backend.Members() {
		sameName, sameURL := m.Name == wanted.Name, m.PeerURL == wanted.PeerURL
		switch {
		case sameURL && m.Learner && (sameName || m.Name == ""):
			// It didn't finish the last time.
		case sameURL:
			return refuse(http.StatusConflict, "%s at %s is a server already: if what it had stored is lost, run `fairway server members remove %[1]s` on another server, and then this again", memberName(m), m.PeerURL)
		case sameName:
			return refuse(http.StatusConflict, "a server named %s is at %s already: choose another name with --server-name; if that server is gone, run `fairway server members remove %[1]s` on another one", m.Name, m.PeerURL)
		}
	}
	return nil
}

// isIPv4 says which family a member's peer URL is of.
func isIPv4(peerURL string) (bool, error) {
	u, err := url.Parse(peerURL)
	if err != nil {
		return false, err
	}
	addr, err := netip.ParseAddrPort(u.Host)
	return addr.Addr().Is4(), err
}

func (s *Server) members(req *http.Request) (any, error) {
	switch req.Method {
	case http.MethodGet:
		return s.listMembers(req.Context())
	case http.MethodDelete:
		return s.deleteMember(req.Context(), req.URL.Query().Get("name"))
	}
	return nil, errMethod
}

// listMembers lists the servers. It does so without the others too.
func (s *Server) listMembers(ctx context.Context) (any, error) {
	if s.config.membership == nil {
		return []Member{{Name: s.config.name(), URL: s.url, Version: KubernetesVersion, Role: "alone", Authorities: s.loaded}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	known := s.backend.Members()
	hasLeader := slices.ContainsFunc(known, func(m storage.MemberInfo) bool { return m.Leader })
	living := map[string]listed{}
	if list, err := listServers(ctx, s.backend.Client.Client); err == nil {
		for _, one := range list {
			living[one.Name] = one
		}
	}
	living[s.config.name()] = listed{Version: KubernetesVersion, SecretKeys: living[s.config.name()].SecretKeys, Authorities: s.loaded, at: netip.AddrPortFrom(s.config.AdvertiseAddress, uint16(s.config.Port))}
	members := []Member{}
	for _, m := range known {
		one := living[m.Name]
		member := Member{Name: memberName(m), PeerURL: m.PeerURL, Version: one.Version, Role: role(m, hasLeader), SecretKeys: one.SecretKeys, Authorities: one.Authorities}
		if one.at.IsValid() {
			member.URL = joinAddress(one.at.Addr(), int(one.at.Port()))
		}
		members = append(members, member)
	}
	return members, nil
}

func role(m storage.MemberInfo, hasLeader bool) string {
	switch {
	case m.Learner:
		return "joining"
	case m.Leader:
		return "leader"
	case !hasLeader:
		return "no leader"
	}
	return "follower"
}

// deleteMember takes a server off the list.
func (s *Server) deleteMember(ctx context.Context, name string) (any, error) {
	for _, m := range s.backend.Members() {
		if memberName(m) != name {
			continue
		}
		if len(s.backend.Members()) == 1 {
			return nil, refuse(http.StatusConflict, "%s is the only server", name)
		}
		if err := s.backend.Remove(ctx, m.ID); err != nil {
			return nil, refuse(http.StatusConflict, "remove %s: %v", name, err)
		}
		slog.Info("a server was removed", "name", name, "peer", m.PeerURL)
		return statusOf(http.StatusOK, metav1.StatusSuccess, ""), nil
	}
	return nil, refuse(http.StatusNotFound, "there is no server named %s; see `fairway server members`", name)
}

// serverTokens lists tokens, or stores one that an administrator has made.
func (s *Server) serverTokens(req *http.Request) (any, error) {
	switch req.Method {
	case http.MethodGet:
		return s.listServerTokens(req.Context())
	case http.MethodPost:
		var token identity.ServerToken
		if err := json.NewDecoder(http.MaxBytesReader(nil, req.Body, 1<<16)).Decode(&token); err != nil || len(token.ID) != 6 || len(token.Hash) != 64 {
			return nil, refuse(http.StatusBadRequest, "a server token has an ID of 6 letters and a hash of 64")
		}
		return token, s.storeServerToken(req.Context(), token)
	}
	return nil, errMethod
}

func (s *Server) removeServerToken(req *http.Request) (any, error) {
	if req.Method != http.MethodDelete {
		return nil, errMethod
	}
	id := strings.TrimPrefix(req.URL.Path, ServerTokensPath+"/")
	found, err := s.deleteServerToken(req.Context(), id)
	if err == nil && !found {
		err = refuse(http.StatusNotFound, "there is no server token %s", id)
	}
	return statusOf(http.StatusOK, metav1.StatusSuccess, ""), err
}
