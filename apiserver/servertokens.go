package apiserver

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairway-net/fairway/apiserver/identity"
)

// serverTokens is where the tokens are kept by which servers join.
const serverTokens = "/fairway/server-tokens/"

func (s *Server) findServerToken(ctx context.Context, id string) (*identity.ServerToken, error) {
	resp, err := s.backend.Client.Client.Get(ctx, serverTokens+id)
	if err != nil || len(resp.Kvs) == 0 {
		return nil, err
	}
	return parseServerToken(resp.Kvs[0].Value)
}

func parseServerToken(data []byte) (*identity.ServerToken, error) {
	token := &identity.ServerToken{}
	if err := json.Unmarshal(data, token); err != nil {
		return nil, fmt.Errorf("read server token: %w", err)
	}
	return token, nil
}

// ServerTokens lists the tokens by which servers join.
func (s *Server) listServerTokens(ctx context.Context) ([]identity.ServerToken, error) {
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
		token.Hash = ""
		tokens = append(tokens, *token)
	}
	return tokens, nil
}

func (s *Server) storeServerToken(ctx context.Context, token identity.ServerToken) error {
	data, err := json.Marshal(token)
	if err != nil {
		return fmt.Errorf("write server token: %w", err)
	}
	if _, err := s.backend.Client.Put(ctx, serverTokens+token.ID, string(data)); err != nil {
		return fmt.Errorf("store server token: %w", err)
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
