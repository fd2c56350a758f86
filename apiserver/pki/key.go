package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// TokenKeys reads the keys of ServiceAccounts' tokens from dir (sa.key), or makes one
// there the first time. The first one signs. All servers of a cluster have the same.
func TokenKeys(dir string) ([]*ecdsa.PrivateKey, error) {
	name := filepath.Join(dir, "sa.key")
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := createTokenKey(name)
		return []*ecdsa.PrivateKey{key}, err
	}
	if err != nil {
		return nil, fmt.Errorf("read key of ServiceAccounts: %w", err)
	}
	return parseTokenKeys(name, data)
}

func parseTokenKeys(name string, data []byte) ([]*ecdsa.PrivateKey, error) {
	var keys []*ecdsa.PrivateKey
	for _, block := range blocks(data) {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse key of ServiceAccounts %s: %w", name, err)
		}
		key, ok := parsed.(*ecdsa.PrivateKey)
		if !ok || key.Curve != elliptic.P256() {
			return nil, fmt.Errorf("parse key of ServiceAccounts %s: must be an ECDSA key on P-256", name)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("read key of ServiceAccounts %s: not PEM encoded", name)
	}
	return keys, nil
}

func createTokenKey(name string) (*ecdsa.PrivateKey, error) {
	key, block, err := newTokenKey()
	if err != nil {
		return nil, err
	}
	return key, WriteFile(name, pem.EncodeToMemory(block), 0o600)
}

func newTokenKey() (*ecdsa.PrivateKey, *pem.Block, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key of ServiceAccounts: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key of ServiceAccounts: %w", err)
	}
	return key, &pem.Block{Type: "PRIVATE KEY", Bytes: der}, nil
}
