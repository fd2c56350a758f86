package fakeapi

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// match tells which objects a request is about.
type match func(*unstructured.Unstructured) bool

func matchOf(r *http.Request, info *request.RequestInfo) (match, error) {
	byLabel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	byField, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	return func(o *unstructured.Unstructured) bool {
		return o != nil && (info.Namespace == "" || o.GetNamespace() == info.Namespace) &&
			byLabel.Matches(labels.Set(o.GetLabels())) &&
			byField.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()})
	}, nil
}

// sorted gives objects in the order of the store; the caller holds the lock.
func (s *Server) sorted(resource string, m match) []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for id, o := range s.objects {
		if id.resource == resource && m(o) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *unstructured.Unstructured) int { return strings.Compare(nameOf(a), nameOf(b)) })
	return list
}

func nameOf(o *unstructured.Unstructured) string { return o.GetNamespace() + "/" + o.GetName() }

// token continues a list: the state of a version, after an object.
type token struct {
	Version int64
	After   string
}

func (t token) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // an integer and a string
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseToken(text string) (t token, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(raw, &t)
}

// list answers with a page. Pages are smaller than the client asks for if the
// server likes; only the token says whether there are more.
func (s *Server) list(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	m, err := matchOf(r, info)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	query := r.URL.Query()
	limit, err := strconv.Atoi(query.Get("limit"))
	if query.Get("limit") != "" && err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "limit: "+err.Error())
		return
	}
	s.mu.Lock()
	slow := s.behaviour.Slow
	s.mu.Unlock()
	pause(r, slow)

	s.mu.Lock()
	defer s.mu.Unlock()
	from := token{Version: s.version}
	if text := query.Get("continue"); text != "" {
		if from, err = parseToken(text); err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "continue: "+err.Error())
			return
		}
		if s.behaviour.Stale > 0 || from.Version < s.oldest {
			s.behaviour.Stale = max(0, s.behaviour.Stale-1)
			gone := status(http.StatusGone, metav1.StatusReasonExpired, "The provided continue parameter is too old")
			gone.Continue = token{s.version, from.After}.String()
			refuseWith(w, gone)
			return
		}
	} else {
		s.seen.Lists++
	}
	s.seen.Pages++
	s.page(w, r, info, m, from, limit)
}

// page sends what follows the token; the caller holds the lock. (The state is
// the latest, not the token's: what a list loses by that comes with the watch.)
func (s *Server) page(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, m match, from token, limit int) {
	items := s.sorted(info.Resource, func(o *unstructured.Unstructured) bool { return m(o) && nameOf(o) > from.After })
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatInt(from.Version, 10)}
	size := limit
	if s.behaviour.Page > 0 && limit > 0 {
		size = min(limit, s.behaviour.Page)
	}
	if size > 0 && len(items) > size {
		rest := int64(len(items) - size)
		items = items[:size]
		meta.Continue, meta.RemainingItemCount = token{from.Version, nameOf(items[size-1])}.String(), &rest
	}
	e := s.encoding(r)
	s.note(e, "list")
	body, err := e.list(kinds[info.Resource], meta, items)
	answer(w, e, body, err)
}
