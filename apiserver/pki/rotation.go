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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// An authority is replaced in phases, between which all servers get its files and start
// anew: first both are trusted and the old one signs, then the new one signs, then the old
// one is forgotten. The files say what the phase is. Of the writes of a step one counts:
// a step that was interrupted is taken again.
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

// IssuerID is how certificates name the key that signs them.
func (a *Authority) IssuerID() string { return hex.EncodeToString(a.cert.SubjectKeyId) }

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

// Rotated are the names of what can be replaced.
var Rotated = []string{ClientsName, ServersName, PeersName, AccountKeys}

// Rotation is an authority that can be replaced: the content of its files. Steps change
// that only; Write writes it.
type Rotation struct {
	name      string
	files     map[string][]byte // by their names
	authority *Authority        // nil for the keys of ServiceAccounts
	keys      []*pem.Block
	// Phase is how far it is.
	Phase Phase
	// KeyIDs name the keys that are trusted, the one that signs first.
	KeyIDs []string
}

// OpenRotation reads an authority in dir.
func OpenRotation(dir, name string) (*Rotation, error) {
	files := map[string][]byte{}
	for _, file := range rotatedFiles(name) {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, fmt.Errorf("read certificate authority: %w", err)
		}
		files[file] = data
	}
	return ParseRotation(name, files)
}

// rotatedFiles are those that all servers have to have.
func rotatedFiles(name string) []string {
	if name == AccountKeys {
		return []string{name + ".key"}
	}
	return []string{name + ".crt", name + ".key"}
}

// ParseRotation reads an authority from the content of its files.
func ParseRotation(name string, files map[string][]byte) (*Rotation, error) {
	if !slices.Contains(Rotated, name) {
		return nil, fmt.Errorf("there is no authority %q: it is one of %s", name, strings.Join(Rotated, ", "))
	}
	r := &Rotation{name: name, files: map[string][]byte{}, Phase: Steady}
	for _, file := range rotatedFiles(name) {
		r.files[file] = files[file]
	}
	return r, r.parse()
}

// parse reads the files again.
func (r *Rotation) parse() error {
	certs, keys := r.files[r.name+".crt"], r.files[r.name+".key"]
	r.keys, r.Phase = blocks(keys), Steady
	if r.name == AccountKeys {
		return r.parseAccounts(keys)
	}
	var err error
	if r.authority, err = parse(r.name+".crt", certs, keys); err != nil {
		return err
	}
	r.KeyIDs = r.authority.KeyIDs()
	if len(r.KeyIDs) > 1 {
		r.Phase = Trusted
		if cross := r.cross(); cross != nil && bytes.Equal(cross.RawSubjectPublicKeyInfo, r.authority.cert.RawSubjectPublicKeyInfo) {
			r.Phase = Used
		}
	}
	return nil
}

func (r *Rotation) parseAccounts(data []byte) error {
	keys, err := parseTokenKeys(r.name+".key", data)
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

// Files are the content of the authority's files, by their names.
func (r *Rotation) Files() map[string][]byte { return maps.Clone(r.files) }

// Write writes the files to dir. Where it is interrupted the directory holds what was
// there before, or what is written.
func (r *Rotation) Write(dir string) error {
	now, err := os.ReadFile(filepath.Join(dir, r.name+".key"))
	if err != nil {
		return fmt.Errorf("read certificate authority: %w", err)
	}
	order := rotatedFiles(r.name) // certificates first: keys are forgotten when none is of use
	if len(blocks(now)) <= len(r.keys) {
		slices.Reverse(order) // new keys first: without certificates nobody takes notice of them
	}
	for _, file := range order {
		mode := os.FileMode(0o600)
		if filepath.Ext(file) == ".crt" {
			mode = 0o644
		}
		if err := WriteFile(filepath.Join(dir, file), r.files[file], mode); err != nil {
			return err
		}
	}
	return nil
}

// Precedes reports whether next is one step further than r, of the same replacement. A
// step that no server has made use of may be taken in another way.
func (r *Rotation) Precedes(next *Rotation) bool {
	switch {
	case r.name != next.name:
		return false
	case next.Phase == Trusted:
		return r.Phase != Used && r.KeyIDs[0] == next.KeyIDs[0] && !slices.Equal(r.KeyIDs, next.KeyIDs)
	case next.Phase == Used:
		return r.Phase == Trusted && r.KeyIDs[0] == next.KeyIDs[1] && r.KeyIDs[1] == next.KeyIDs[0]
	}
	return r.Phase == Used && r.KeyIDs[0] == next.KeyIDs[0]
}

func isPending(b *pem.Block) bool { return b.Headers[pendingHeader] != "" }

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
		return r.change(nil, append(slices.Clone(r.keys), block))
	}
	successor, err := r.authority.successor()
	if err != nil {
		return err
	}
	return r.change(encode(r.authority.cert.Raw, successor.cross, successor.self), append(r.signing(), successor.key))
}

// signing is the key that signs now, without keys that are left of a step that was
// interrupted.
func (r *Rotation) signing() []*pem.Block {
	return slices.DeleteFunc(slices.Clone(r.keys), func(b *pem.Block) bool { return !r.signs(b) })
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
		return r.change(nil, keys)
	}
	cross := r.cross()
	if cross == nil {
		return fmt.Errorf("%s: the new authority has no signature of the old one", r.name+".crt")
	}
	var self *x509.Certificate
	for _, c := range r.authority.certs {
		if c != cross && bytes.Equal(c.RawSubjectPublicKeyInfo, cross.RawSubjectPublicKeyInfo) {
			self = c
		}
	}
	if self == nil {
		return fmt.Errorf("%s: the new authority isn't in it", r.name+".crt")
	}
	return r.change(encode(self.Raw, cross.Raw, r.authority.cert.Raw), r.keys)
}

// Finish forgets the old authority, and keys that are left of a step that was interrupted.
func (r *Rotation) Finish() error {
	switch {
	case r.Phase == Trusted:
		return errors.New("the new one doesn't sign yet: use it first")
	case r.authority == nil:
		return r.change(nil, r.keys[:1])
	}
	kept := [][]byte{r.authority.cert.Raw}
	// Clients that know the old authority of servers only still believe them, until each
	// has the new one.
	if cross := r.cross(); cross != nil && r.name == ServersName {
		kept = append(kept, cross.Raw)
	}
	return r.change(encode(kept...), r.signing())
}

// encode is PEM of certificates.
func encode(certs ...[]byte) []byte {
	var data []byte
	for _, der := range certs {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return data
}

// change replaces certificates, if there are any, and keys.
func (r *Rotation) change(certs []byte, keys []*pem.Block) error {
	if certs != nil {
		r.files[r.name+".crt"] = certs
	}
	var data []byte
	for _, b := range keys {
		data = append(data, pem.EncodeToMemory(b)...)
	}
	r.files[r.name+".key"] = data
	return r.parse()
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
