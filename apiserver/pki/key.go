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

// TokenKey reads the key that signs ServiceAccounts' tokens from dir (sa.key),
// or makes one there the first time. All servers of a cluster have the same.
func TokenKey(dir string) (*ecdsa.PrivateKey, error) {
	name := filepath.Join(dir, "sa.key")
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return createTokenKey(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read key of ServiceAccounts: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("read key of ServiceAccounts %s: not PEM encoded", name)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse key of ServiceAccounts %s: %w", name, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("parse key of ServiceAccounts %s: must be an ECDSA key on P-256", name)
	}
	return key, nil
}

func createTokenKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key of ServiceAccounts: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key of ServiceAccounts: %w", err)
	}
	return key, WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}
