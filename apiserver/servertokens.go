package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairway-net/fairway/apiserver/identity"
)

// serverTokens is where the tokens are kept by which servers join.
const serverTokens = "/fairway/server-tokens/"

func parseServerToken(data []byte) (*identity.ServerToken, error) {
	token := &identity.ServerToken{}
	if err := json.Unmarshal(data, token); err != nil {
		return nil, fmt.Errorf("read server token: %w", err)
	}
	return token, nil
}

// listServerTokens lists the tokens by which servers join, for administrators to see.
func (s *Server) listServerTokens(ctx context.Context) ([]identity.ServerToken, error) {
	tokens, err := s.keptServerTokens(ctx)
	for i := range tokens {
		tokens[i].Hash = ""
	}
	return tokens, err
}

// keptServerTokens are the tokens as they are kept.
func (s *Server) keptServerTokens(ctx context.Context) ([]identity.ServerToken, error) {
	resp, err := s.backend.Client.Client.Get(ctx, serverTokens, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list server tokens: %w", err)
	}
	tokens := []identity.ServerToken{}
	for _, kv := range resp.Kvs {
		token, err := parseServerToken(kv.Value)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, *token)
	}
	return tokens, nil
}

// dropExpiredServerTokens deletes tokens that are good for nothing any more.
func (s *Server) dropExpiredServerTokens(ctx context.Context) {
	list, err := s.listServerTokens(ctx)
	for i := range list {
		if at := list[i].Expires; err == nil && !at.IsZero() && time.Since(at) > heldTime {
			_, err = s.deleteServerToken(ctx, list[i].ID)
		}
	}
	if err != nil {
		slog.Warn("expired server tokens could not be deleted; they are refused", "error", err)
	}
}

func (s *Server) storeServerToken(ctx context.Context, token identity.ServerToken) error {
	s.dropExpiredServerTokens(ctx)
	data, err := json.Marshal(token)
	if err != nil {
		return fmt.Errorf("write server token: %w", err)
	}
	if _, err := s.backend.Client.Put(ctx, serverTokens+token.ID, string(data)); err != nil {
		return fmt.Errorf("store server token: %w", err)
	}
	return nil
}

// heldTime is how long a server that has begun to join may try again.
const heldTime = time.Hour

// holdServerToken makes a token good for one server only.
func (s *Server) holdServerToken(ctx context.Context, id, holder string) error {
	etcd := s.backend.Client.Client
	resp, err := etcd.Get(ctx, serverTokens+id)
	if err != nil {
		return fmt.Errorf("find server token %s: %w", id, err)
	}
	if len(resp.Kvs) == 0 {
		return refuse(http.StatusForbidden, "server token %s was deleted", id)
	}
	token, err := parseServerToken(resp.Kvs[0].Value)
	if err != nil || token.Holder == holder {
		return err
	}
	used := refuse(http.StatusForbidden, "server token %s is used by another server: each lets one server join; make a new one with `fairway token create --server`", id)
	if token.Holder != "" {
		return used
	}
	token.Holder = holder
	if last := time.Now().Add(heldTime); token.Expires.IsZero() || last.Before(token.Expires) {
		token.Expires = last
	}
	data, err := json.Marshal(token)
	if err != nil {
		return fmt.Errorf("write server token: %w", err)
	}
	written, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(serverTokens+id), "=", resp.Kvs[0].ModRevision)).
		Then(clientv3.OpPut(serverTokens+id, string(data))).Commit()
	if err != nil {
		return fmt.Errorf("store server token: %w", err)
	}
	if !written.Succeeded {
		return used
	}
	return nil
}

// deleteServerToken says whether there was one.
func (s *Server) deleteServerToken(ctx context.Context, id string) (bool, error) {
	resp, err := s.backend.Client.Client.Delete(ctx, serverTokens+id)
	if err != nil {
		return false, fmt.Errorf("delete server token: %w", err)
	}
	return resp.Deleted > 0, nil
}
