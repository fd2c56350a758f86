package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/apiserver/storage"
	"github.com/fairway-net/fairway/internal/logdedup"
	"github.com/fairway-net/fairway/kube/join"
)

// Authorities are replaced in steps (see package pki). A step that an administrator asks
// for at any server is one write to the store, encrypted as Secrets are. Each server then
// writes the files to its own directory, and uses them from its next start on. The next
// step is refused until all servers have begun to use the last one.

// AuthoritiesPath is where an administrator takes the next step of the replacement of an
// authority. Whoever is authenticated reads there what is public of them.
const AuthoritiesPath = join.AuthoritiesPath

// rotations is where the files of the last steps are kept.
const rotations = "/fairway/authorities/"

// The steps of a replacement.
const (
	StepTrust  = "trust"
	StepUse    = "use"
	StepFinish = "finish"
)

// Steps are those of a replacement, in their order.
var Steps = []string{StepTrust, StepUse, StepFinish}

// RotationStep is what an administrator asks for.
type RotationStep struct {
	// Authority is one of pki.Rotated.
	Authority string `json:"authority"`
	Step      string `json:"step"`
	// Force finishes although there are clients that only the old one vouches for.
	Force bool `json:"force,omitempty"`
}

// RotationState is how far a replacement is.
type RotationState struct {
	Phase pki.Phase `json:"phase"`
	// Restart are the servers that don't use the authority's files yet.
	Restart []string `json:"restart,omitempty"`
}

// loadedKeys are the keys of each authority that this server has begun to use.
func loadedKeys(dir string) (map[string][]string, error) {
	keys := map[string][]string{}
	for _, name := range pki.Rotated {
		r, err := pki.OpenRotation(dir, name)
		if err != nil {
			return nil, err
		}
		keys[name] = r.KeyIDs
	}
	return keys, nil
}

func (s *Server) pkiDir() string { return filepath.Join(s.config.DataDir, "pki") }

// serveAuthorities tells clients what to believe, and takes steps of replacements.
func (s *Server) serveAuthorities(req *http.Request) (any, error) {
	switch req.Method {
	case http.MethodGet:
		return join.Authorities{Servers: s.CA(), Clients: s.authorities.Clients.IssuerID()}, nil
	case http.MethodPost:
		var wanted RotationStep
		if err := json.NewDecoder(http.MaxBytesReader(nil, req.Body, 1<<12)).Decode(&wanted); err != nil {
			return nil, refuse(http.StatusBadRequest, "read request: %v", err)
		}
		if !slices.Contains(pki.Rotated, wanted.Authority) {
			return nil, refuse(http.StatusBadRequest, "there is no authority %q: it is one of %s", wanted.Authority, strings.Join(pki.Rotated, ", "))
		}
		if !slices.Contains(Steps, wanted.Step) {
			return nil, refuse(http.StatusBadRequest, "there is no step %q: it is one of %s", wanted.Step, strings.Join(Steps, ", "))
		}
		return s.rotate(req.Context(), wanted)
	}
	return nil, errMethod
}

// reached are the phases in which a step has been taken.
var reached = map[string]pki.Phase{StepTrust: pki.Trusted, StepUse: pki.Used, StepFinish: pki.Steady}

// rotate takes a step. One that was taken is not taken again.
func (s *Server) rotate(ctx context.Context, wanted RotationStep) (*RotationState, error) {
	if s.config.membership == nil && len(s.config.EtcdServers) > 0 {
		return nil, refuse(http.StatusConflict, "servers on an etcd of others don't know of each other for sure: replace the files in DATA-DIR/pki by hand, on all of them")
	}
	revision, err := s.adoptRotation(ctx, wanted.Authority)
	if err != nil {
		return nil, err
	}
	r, err := pki.OpenRotation(s.pkiDir(), wanted.Authority)
	if err != nil {
		return nil, err
	}
	away, outdated, err := s.behind(ctx, wanted.Authority, r.KeyIDs)
	if err != nil {
		return nil, err
	}
	if len(away) > 0 {
		if r.Phase == reached[wanted.Step] {
			return &RotationState{r.Phase, away}, nil // this step, or the finish of the last replacement
		}
		return nil, refuse(http.StatusConflict, "%s: these servers don't use the files of the last step yet: %s; restart them first, one after the other (nothing was changed)", wanted.Authority, strings.Join(away, ", "))
	}
	if r.Phase == reached[wanted.Step] && wanted.Step != StepFinish {
		return &RotationState{Phase: r.Phase}, nil
	}
	if wanted.Step == StepFinish && r.Phase == pki.Used && len(outdated) > 0 && !wanted.Force {
		return nil, refuse(http.StatusConflict, "%s: the old one alone vouches for clients that came within %s: %s; renew their credentials first, or lock them out with --force (nothing was changed)", wanted.Authority, outdatedFor, strings.Join(outdated, ", "))
	}
	if err := step(r, wanted.Step); err != nil {
		return nil, refuse(http.StatusConflict, "%s: %v (nothing was changed)", wanted.Authority, err)
	}
	if err := s.publishRotation(ctx, wanted.Authority, r, revision); err != nil {
		return nil, err
	}
	slog.Info("an authority is being replaced", "authority", wanted.Authority, "step", wanted.Step, "phase", r.Phase)
	if _, err := s.adoptRotation(ctx, wanted.Authority); err != nil {
		return nil, err
	}
	away, _, err = s.behind(ctx, wanted.Authority, r.KeyIDs)
	return &RotationState{r.Phase, away}, err
}

func step(r *pki.Rotation, name string) error {
	switch name {
	case StepTrust:
		return r.Trust()
	case StepUse:
		return r.Use()
	}
	if r.Phase == pki.Steady {
		return errors.New("no replacement is under way: begin one with the step trust")
	}
	return r.Finish()
}

// behind are the servers that don't use the keys of an authority, and clients that only
// its old key vouches for.
func (s *Server) behind(ctx context.Context, authority string, keys []string) (away, outdated []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	list, err := listServers(ctx, s.backend.Client.Client)
	if err != nil {
		return nil, nil, err
	}
	listed := map[string]bool{}
	for _, one := range list {
		listed[one.Name] = true
		if !slices.Equal(one.Authorities[authority], keys) {
			away = append(away, one.Name)
		}
		outdated = append(outdated, one.Outdated[authority]...)
	}
	if s.config.membership != nil {
		for _, m := range s.backend.Members() {
			if name := memberName(m); !listed[name] {
				away = append(away, name+" (it is down)")
			}
		}
	}
	slices.Sort(away)
	slices.Sort(outdated)
	return away, slices.Compact(outdated), nil
}

// publishRotation stores a step for all servers, unless another one was stored meanwhile.
func (s *Server) publishRotation(ctx context.Context, authority string, r *pki.Rotation, revision int64) error {
	data, err := json.Marshal(r.Files())
	if err != nil {
		return fmt.Errorf("write authority: %w", err)
	}
	written, err := s.storeRotation(ctx, authority, data, revision)
	if err == nil && !written {
		err = refuse(http.StatusConflict, "%s: another administrator took a step at the same time", authority)
	}
	return err
}

// storeRotation stores the files of a step, encrypted, if the stored one is still that of
// a revision.
func (s *Server) storeRotation(ctx context.Context, authority string, data []byte, revision int64) (bool, error) {
	encryption, err := storage.Encryption(EncryptionKeys(s.config.DataDir))
	if err != nil {
		return false, err
	}
	key := rotations + authority
	if data, err = encryption.TransformToStorage(ctx, data, value.DefaultContext(key)); err != nil {
		return false, fmt.Errorf("encrypt authority %s: %w", authority, err)
	}
	written, err := s.backend.Client.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(data))).Commit()
	if err != nil {
		return false, fmt.Errorf("store authority %s: %w", authority, err)
	}
	return written.Succeeded, nil
}

// storedRotation are the files of the last step.
type storedRotation struct {
	data     []byte
	revision int64 // 0 if no step was ever taken
	stale    bool  // encrypted with another key than is written with now
}

func (s *Server) readRotation(ctx context.Context, authority string) (storedRotation, error) {
	key := rotations + authority
	resp, err := s.backend.Client.Client.Get(ctx, key)
	if err != nil {
		return storedRotation{}, fmt.Errorf("read authority %s: %w", authority, err)
	}
	if len(resp.Kvs) == 0 {
		return storedRotation{}, nil
	}
	encryption, err := storage.Encryption(EncryptionKeys(s.config.DataDir))
	if err != nil {
		return storedRotation{}, err
	}
	data, stale, err := encryption.TransformFromStorage(ctx, resp.Kvs[0].Value, value.DefaultContext(key))
	if err != nil {
		return storedRotation{}, fmt.Errorf("decrypt authority %s: %w", authority, err)
	}
	return storedRotation{data, resp.Kvs[0].ModRevision, stale}, nil
}

// rewriteRotations encrypts with the key that this server writes with what was encrypted
// with another one: a key that an administrator takes away must not be needed for it.
func (s *Server) rewriteRotations(ctx context.Context) error {
	for _, authority := range pki.Rotated {
		stored, err := s.readRotation(ctx, authority)
		if err == nil && stored.stale {
			_, err = s.storeRotation(ctx, authority, stored.data, stored.revision) // else there is a newer one
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// adoptRotation writes to this server's directory what the last step has made of an
// authority, if it is the next one here. It returns the revision of that step in the
// store; 0 if there is none.
func (s *Server) adoptRotation(ctx context.Context, authority string) (int64, error) {
	s.rotating.Lock()
	defer s.rotating.Unlock()
	stored, err := s.readRotation(ctx, authority)
	if err != nil || stored.revision == 0 {
		return 0, err
	}
	files := map[string][]byte{}
	if err := json.Unmarshal(stored.data, &files); err != nil {
		return 0, fmt.Errorf("read authority %s: %w", authority, err)
	}
	next, err := pki.ParseRotation(authority, files)
	if err != nil {
		return 0, err
	}
	own, err := pki.OpenRotation(s.pkiDir(), authority)
	if err != nil {
		return 0, err
	}
	if !own.Precedes(next) {
		return stored.revision, nil
	}
	if err := next.Write(s.pkiDir()); err != nil {
		return 0, err
	}
	slog.Warn("an authority is being replaced: restart this server when it is its turn", "authority", authority, "phase", next.Phase)
	return stored.revision, nil
}

// rotationPeriod is how often a server looks for steps that its watch has missed.
const rotationPeriod = time.Minute

// followRotations writes to this server's directory what becomes of authorities, until
// ctx is done.
func (s *Server) followRotations(ctx context.Context) {
	changes := s.backend.Client.Client.Watch(clientv3.WithRequireLeader(ctx), rotations, clientv3.WithPrefix())
	tick := time.NewTicker(rotationPeriod)
	defer tick.Stop()
	log := slog.New(logdedup.New(slog.Default().Handler()))
	if err := storage.DespiteElections(ctx, "encrypt authorities with the key of Secrets", s.rewriteRotations); err != nil && ctx.Err() == nil {
		log.Warn("authorities stay encrypted with a former key of Secrets until the next start", "error", err)
	}
	for {
		for _, name := range pki.Rotated {
			if _, err := s.adoptRotation(ctx, name); err != nil && ctx.Err() == nil {
				log.Warn("the state of an authority's replacement could not be read; trying again", "authority", name, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case _, ok := <-changes:
			if !ok {
				changes = nil // the ticks go on without it
			}
		case <-tick.C:
		}
	}
}

// presentAs is what a server says of itself to the others.
func (s *Server) presentAs(secretKeys []string) listed {
	return listed{
		Name: s.config.name(), Version: KubernetesVersion, SecretKeys: secretKeys,
		Authorities: maps.Clone(s.loaded), Outdated: s.outdated.recent(time.Now()),
	}
}
