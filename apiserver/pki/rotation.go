package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// An authority is replaced in phases, between which all servers get its files and start
// anew: first both are trusted and the old one signs, then the new one signs, then the old
// one is forgotten. What the phase is can be seen in the files, and each step is one write
// that counts: one that was interrupted is taken again.
//
//	           NAME.crt                     NAME.key
//	           old                          old
//	Trust      old, new by old, new         old, new
//	Use        new, new by old, old         old, new
//	Finish     new (ca: and new by old)     new
//
// "New by old" is the new authority with the old one's signature: who trusts the old one
// trusts what the new one signs, too. The keys of ServiceAccounts are sa.key alone, whose
// new key is marked until it signs.

// Phase is how far the replacement of an authority is.
type Phase string

// The phases of a replacement.
const (
	Steady  Phase = "steady"
	Trusted Phase = "both are trusted, the old one signs"
	Used    Phase = "both are trusted, the new one signs"
)

// Authorities' names, as those of their files. AccountKeys is no authority with
// certificates.
const (
	ServersName = "ca"
	ClientsName = "client-ca"
	PeersName   = "etcd-ca"
	AccountKeys = "sa"
)

// pendingHeader marks the key in sa.key that doesn't sign yet.
const pendingHeader = "Pending"

// KeyIDs name the keys of an authority that are trusted, the one that signs first.
func (a *Authority) KeyIDs() []string {
	var ids []string
	for _, c := range a.certs {
		if id := keyID(c.RawSubjectPublicKeyInfo); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// TokenKeyIDs name keys of ServiceAccounts.
func TokenKeyIDs(keys []*ecdsa.PrivateKey) ([]string, error) {
	var ids []string
	for _, key := range keys {
		public, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			return nil, fmt.Errorf("encode key of ServiceAccounts: %w", err)
		}
		ids = append(ids, keyID(public))
	}
	return ids, nil
}

func keyID(public []byte) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:8])
}

// Rotation is an authority of a directory that can be replaced.
type Rotation struct {
	dir, name string
	authority *Authority // nil for the keys of ServiceAccounts
	keys      []*pem.Block
	// Phase is how far it is.
	Phase Phase
	// KeyIDs name the keys that are trusted, the one that signs first.
	KeyIDs []string
}

// OpenRotation reads an authority in dir.
func OpenRotation(dir, name string) (*Rotation, error) {
	r := &Rotation{dir: dir, name: name, Phase: Steady}
	data, err := os.ReadFile(r.file(".key"))
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	r.keys = blocks(data)
	if name == AccountKeys {
		return r, r.openAccounts()
	}
	certs, err := os.ReadFile(r.file(".crt"))
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	if r.authority, err = parse(r.file(".crt"), certs, data); err != nil {
		return nil, err
	}
	r.KeyIDs = r.authority.KeyIDs()
	if len(r.KeyIDs) > 1 {
		r.Phase = Trusted
		if cross := r.cross(); cross != nil && bytes.Equal(cross.RawSubjectPublicKeyInfo, r.authority.cert.RawSubjectPublicKeyInfo) {
			r.Phase = Used
		}
	}
	return r, nil
}

func (r *Rotation) openAccounts() error {
	keys, err := TokenKeys(r.dir)
	if err != nil {
		return err
	}
	if r.KeyIDs, err = TokenKeyIDs(keys); err != nil {
		return err
	}
	if len(keys) > 1 {
		r.Phase = Used
		if slices.ContainsFunc(r.keys, isPending) {
			r.Phase = Trusted
		}
	}
	return nil
}

func isPending(b *pem.Block) bool { return b.Headers[pendingHeader] != "" }

func (r *Rotation) file(extension string) string { return filepath.Join(r.dir, r.name+extension) }

// Files are those that all servers have to have.
func (r *Rotation) Files() []string {
	if r.authority == nil {
		return []string{r.file(".key")}
	}
	return []string{r.file(".crt"), r.file(".key")}
}

// cross is the new authority with the old one's signature.
func (r *Rotation) cross() *x509.Certificate {
	for _, c := range r.authority.certs {
		if !bytes.Equal(c.RawIssuer, c.RawSubject) {
			return c
		}
	}
	return nil
}

// Trust makes a new authority that is trusted beside the old one. It does nothing if
// there is one already.
func (r *Rotation) Trust() error {
	switch {
	case r.Phase == Trusted:
		return nil
	case r.Phase == Used:
		return errors.New("the last replacement isn't finished: finish it first")
	case r.authority == nil:
		_, block, err := newTokenKey()
		if err != nil {
			return err
		}
		block.Headers = map[string]string{pendingHeader: "true"}
		return r.writeKeys(append(slices.Clone(r.keys), block))
	}
	successor, err := r.authority.successor()
	if err != nil {
		return err
	}
	// The keys first: without certificates nobody takes notice of a second one.
	own := slices.DeleteFunc(slices.Clone(r.keys), func(b *pem.Block) bool { return !r.signs(b) })
	if err := r.writeKeys(append(own, successor.key)); err != nil {
		return err
	}
	return r.writeCerts(r.authority.cert.Raw, successor.cross, successor.self)
}

// signs reports whether a key is that of the authority that signs now.
func (r *Rotation) signs(b *pem.Block) bool {
	_, err := parse(r.name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.authority.cert.Raw}), pem.EncodeToMemory(b))
	return err == nil
}

// Use has the new authority sign.
func (r *Rotation) Use() error {
	switch {
	case r.Phase == Used:
		return nil
	case r.Phase == Steady:
		return errors.New("there is no new one: make it first")
	case r.authority == nil:
		var keys []*pem.Block
		for _, b := range slices.Backward(r.keys) {
			keys = append(keys, &pem.Block{Type: b.Type, Bytes: b.Bytes})
		}
		return r.writeKeys(keys)
	}
	cross := r.cross()
	if cross == nil {
		return fmt.Errorf("%s: the new authority has no signature of the old one", r.file(".crt"))
	}
	var self *x509.Certificate
	for _, c := range r.authority.certs {
		if c != cross && bytes.Equal(c.RawSubjectPublicKeyInfo, cross.RawSubjectPublicKeyInfo) {
			self = c
		}
	}
	if self == nil {
		return fmt.Errorf("%s: the new authority isn't in it", r.file(".crt"))
	}
	return r.writeCerts(self.Raw, cross.Raw, r.authority.cert.Raw)
}

// Finish forgets the old authority, and keys that are left of a step that was interrupted.
func (r *Rotation) Finish() error {
	switch {
	case r.Phase == Trusted:
		return errors.New("the new one doesn't sign yet: use it first")
	case r.authority == nil:
		return r.writeKeys(r.keys[:1])
	}
	kept := [][]byte{r.authority.cert.Raw}
	// Clients that know the old authority of servers only still believe them, until each
	// has the new one.
	if cross := r.cross(); cross != nil && r.name == ServersName {
		kept = append(kept, cross.Raw)
	}
	if err := r.writeCerts(kept...); err != nil {
		return err
	}
	return r.writeKeys(slices.DeleteFunc(slices.Clone(r.keys), func(b *pem.Block) bool { return !r.signs(b) }))
}

func (r *Rotation) writeCerts(certs ...[]byte) error {
	var data []byte
	for _, der := range certs {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return WriteFile(r.file(".crt"), data, 0o644)
}

func (r *Rotation) writeKeys(keys []*pem.Block) error {
	var data []byte
	for _, b := range keys {
		data = append(data, pem.EncodeToMemory(b)...)
	}
	return WriteFile(r.file(".key"), data, 0o600)
}

// successor is a new authority of the same kind.
type successor struct {
	key         *pem.Block
	self, cross []byte
}

func (a *Authority) successor() (*successor, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	s := &successor{key: &pem.Block{Type: "PRIVATE KEY", Bytes: der}}
	// A name of its own: certificates say by it which of the two they are of.
	kind, _, _ := strings.Cut(a.cert.Subject.CommonName, " ")
	name := pkix.Name{CommonName: kind + " " + time.Now().UTC().Format("2006-01-02T15:04:05.000")}
	self, err := authorityTemplate(name)
	if err != nil {
		return nil, err
	}
	if s.self, err = x509.CreateCertificate(rand.Reader, self, self, key.Public(), key); err != nil {
		return nil, fmt.Errorf("sign certificate authority: %w", err)
	}
	cross, err := authorityTemplate(name)
	if err != nil {
		return nil, err
	}
	cross.NotAfter = a.cert.NotAfter
	if s.cross, err = x509.CreateCertificate(rand.Reader, cross, a.cert, key.Public(), a.key); err != nil {
		return nil, fmt.Errorf("sign certificate authority: %w", err)
	}
	return s, nil
}
