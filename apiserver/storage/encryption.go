package storage

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/fairway-net/fairway/internal/keptfile"
)

const (
	// keyBytes is the length of a key: AES-256 keys are derived from it, one for
	// each write.
	keyBytes = 32
	// encryptedPrefix precedes what is encrypted, and the key's name follows.
	encryptedPrefix = "fairway:enc:aesgcm:v1:"
)

// Encryption returns how Secrets are stored: encrypted with the first key of
// file, which is made if it isn't there. Each line of the file is a key, in
// base64; the others are for reading what was written with them. What was
// stored in the clear can be read, and is encrypted when it is next written.
func Encryption(file string) (value.Transformer, error) {
	keys, err := encryptionKeys(file)
	if err != nil {
		return nil, err
	}
	var transformers []value.PrefixTransformer
	for _, key := range keys {
		transformer, err := aes.NewHKDFExtendedNonceGCMTransformer(key)
		if err != nil {
			return nil, fmt.Errorf("use key of %s: %w", file, err)
		}
		transformers = append(transformers, value.PrefixTransformer{Prefix: []byte(encryptedPrefix + keyName(key) + ":"), Transformer: transformer})
	}
	transformers = append(transformers, value.PrefixTransformer{Prefix: nil, Transformer: identity.NewEncryptCheckTransformer()})
	unknown := fmt.Errorf("no key in %s is the one that this was encrypted with", file)
	return value.NewPrefixTransformers(unknown, transformers...), nil
}

// AddEncryptionKey puts a new key behind those of file. Servers that start afterwards read
// what is encrypted with it, and don't write with it yet: all servers must have it first.
func AddEncryptionKey(file string) error {
	keys, err := encryptionKeys(file)
	if err != nil {
		return err
	}
	return writeKeys(file, encodeKeys(append(keys, newKey())))
}

// UseLastEncryptionKey puts the last key of file first. Servers that start afterwards
// encrypt with it.
func UseLastEncryptionKey(file string) error {
	keys, err := encryptionKeys(file)
	if err != nil {
		return err
	}
	if len(keys) < 2 {
		return fmt.Errorf("%s has one key only: make another one with --new-key", file)
	}
	last := len(keys) - 1
	return writeKeys(file, encodeKeys(slices.Concat(keys[last:], keys[:last])))
}

func encodeKeys(keys [][]byte) []byte {
	var out []byte
	for _, key := range keys {
		out = append(base64.StdEncoding.AppendEncode(out, key), '\n')
	}
	return out
}

// UnknownKeys are the names of keys with which Secrets in the store, and what is below
// the other prefixes, are encrypted and that file doesn't have, and of how many each.
func UnknownKeys(ctx context.Context, client *clientv3.Client, file string, prefixes ...string) (map[string]int, error) {
	names, err := KeyNames(file)
	if err != nil {
		return nil, err
	}
	unknown := map[string]int{}
	for _, prefix := range append(prefixes, keyPrefix+"/secrets/") {
		if err := countKeys(ctx, client, prefix, unknown); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		delete(unknown, name)
	}
	return unknown, nil
}

// countKeys counts by the names of keys what is encrypted below a prefix.
func countKeys(ctx context.Context, client *clientv3.Client, prefix string, counts map[string]int) error {
	for from := prefix; ; {
		page, err := client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(secretsPage))
		if err != nil {
			return fmt.Errorf("read what is encrypted: %w", err)
		}
		for _, kv := range page.Kvs {
			if name, encrypted := keyOf(kv.Value); encrypted {
				counts[name]++
			}
		}
		if !page.More {
			return nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// secretsPage is how many Secrets are read at a time.
const secretsPage = 500

// keyOf names the key that a stored value is encrypted with.
func keyOf(value []byte) (name string, encrypted bool) {
	rest, encrypted := strings.CutPrefix(string(value[:min(len(value), 128)]), encryptedPrefix)
	if encrypted {
		name, _, _ = strings.Cut(rest, ":")
	}
	return name, encrypted
}

// KeyNames are the names of the keys in file, the one that is written with first.
func KeyNames(file string) ([]string, error) {
	keys, err := encryptionKeys(file)
	var names []string
	for _, key := range keys {
		names = append(names, keyName(key))
	}
	return names, err
}

// keyName tells keys apart; it says nothing about the key.
func keyName(key []byte) string {
	sum := sha256.Sum256(append([]byte("fairway key name "), key...))
	return hex.EncodeToString(sum[:6])
}

func newKey() []byte {
	key := make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		panic(err) // crypto/rand never fails on Linux
	}
	return key
}

func encryptionKeys(file string) ([][]byte, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		key := newKey()
		return [][]byte{key}, writeKeys(file, []byte(base64.StdEncoding.EncodeToString(key)+"\n"))
	}
	if err != nil {
		return nil, fmt.Errorf("read encryption keys: %w", err)
	}
	var keys [][]byte
	for lines := bufio.NewScanner(strings.NewReader(string(data))); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != keyBytes {
			return nil, fmt.Errorf("read encryption keys: %s has a line that is no key of %d bytes in base64", file, keyBytes)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("read encryption keys: %s has none", file)
	}
	return keys, nil
}

func writeKeys(file string, data []byte) error {
	if err := keptfile.Write(file, data, 0o600); err != nil {
		return fmt.Errorf("write encryption keys: %w", err)
	}
	return nil
}
