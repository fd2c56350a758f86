package fakeapi

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// requests reads paths and parameters as a Kubernetes API server does.
var requests = &request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// ServeHTTP answers a client.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.knows(r) {
		refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "who are you?")
		return
	}
	info, err := requests.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "nothing but resources is served")
		return
	}
	if s.turnAway(w, r.URL.Path) || !s.admit(w, info) {
		return
	}
	gvk, served := kinds[info.Resource]
	if !served || gvk.Group != info.APIGroup || gvk.Version != info.APIVersion || info.Subresource != "" {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such resource")
		return
	}
	switch info.Verb {
	case "list":
		s.list(w, r, info)
	case "watch":
		s.watch(w, r, info)
	case "get":
		s.get(w, r, info)
	case "create":
		s.create(w, r, info)
	default:
		refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, info.Verb)
	}
}

// knows reports whether a client shows the token that is good.
func (s *Server) knows(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Token == "" || r.Header.Get("Authorization") == "Bearer "+s.Token {
		return true
	}
	s.seen.Unauthorized++
	return false
}

// turnAway answers a request that the server has no time for.
func (s *Server) turnAway(w http.ResponseWriter, path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.notYet[path]) {
		s.seen.Early++
	}
	switch {
	case s.behaviour.Away:
		refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "nobody is here")
	case s.behaviour.Refuse > 0:
		s.behaviour.Refuse--
		s.seen.Refused++
		s.notYet[path] = time.Now().Add(time.Duration(s.behaviour.RetryAfter) * time.Second)
		w.Header().Set("Retry-After", strconv.Itoa(s.behaviour.RetryAfter))
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests, please try again later")
	default:
		return false
	}
	return true
}

// admit notes what permission a request needs and whether it has it.
func (s *Server) admit(w http.ResponseWriter, info *request.RequestInfo) bool {
	a := Access{Verb: info.Verb, Group: info.APIGroup, Resource: info.Resource}
	if info.Subresource != "" {
		a.Resource += "/" + info.Subresource
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.seen.Access, a) {
		s.seen.Access = append(s.seen.Access, a)
	}
	if s.Rules == nil || Allowed(s.Rules, a) {
		return true
	}
	if !slices.Contains(s.seen.Forbidden, a) {
		s.seen.Forbidden = append(s.seen.Forbidden, a)
	}
	refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, a.Resource+" is forbidden: cannot "+a.Verb)
	return false
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	s.mu.Lock()
	o := s.objects[identity{info.Resource, info.Namespace, info.Name}]
	e := s.encoding(r)
	s.mu.Unlock()
	if o == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, info.Resource+" "+info.Name+" not found")
		return
	}
	body, err := e.object(o)
	answer(w, e, body, err)
}

// create stores what a client sends, of which only JSON and protobuf Events are
// expected.
func (s *Server) create(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	o, err := decode(body)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	o.SetNamespace(info.Namespace)
	s.mu.Lock()
	id := identity{info.Resource, info.Namespace, o.GetName()}
	exists := s.objects[id] != nil
	if !exists {
		s.store(info.Resource, id, o)
	}
	e := s.encoding(r)
	s.mu.Unlock()
	if exists {
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, o.GetName()+" already exists")
		return
	}
	sent, err := e.object(o)
	answer(w, e, sent, err)
}

// pause waits, unless the client goes.
func pause(r *http.Request, d time.Duration) {
	select {
	case <-r.Context().Done():
	case <-time.After(d):
	}
}

// answer sends a body. A client that has gone is no concern of the server's.
func answer(w http.ResponseWriter, e encoding, body []byte, err error) {
	if err != nil {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
		return
	}
	w.Header().Set("Content-Type", e.mediaType())
	_, _ = w.Write(body)
}

func status(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

// refuse answers with an error; a Status may always come as JSON.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	refuseWith(w, status(code, reason, message))
}

func refuseWith(w http.ResponseWriter, st *metav1.Status) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(st.Code))
	_ = json.NewEncoder(w).Encode(st)
}
