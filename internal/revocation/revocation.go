// Package revocation is the form of the lists of machines whose certificates were
// revoked. The controller that signs certificates writes them, and API servers read
// them with each request.
//
// A list is a ConfigMap in kube-system: the name of a Node, and the time until which
// certificates of its machine were issued that no longer hold. Machines are divided
// among several lists by their names, as one object has room for some 15,000.
package revocation

import (
	"crypto/x509"
	"fmt"
	"hash/fnv"
	"math/big"
	"strings"
	"time"
)

// Undivided is the one list of earlier versions. It holds, too.
const Undivided = "fairway-revoked-machines"

// lists is how many lists there are.
const lists = 16

// Names are those of all lists.
func Names() []string {
	names := []string{Undivided}
	for i := range uint32(lists) {
		names = append(names, listName(i))
	}
	return names
}

// ListOf names the list that has a machine.
func ListOf(node string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // never fails
	return listName(h.Sum32() % lists)
}

func listName(i uint32) string { return fmt.Sprintf("%s-%x", Undivided, i) }

// Entry is what a list says of a machine.
type Entry struct {
	// Until is when the last certificate was issued that doesn't hold.
	Until time.Time
	// All says that no certificate holds, whenever it was issued: somebody has locked
	// the machine out, and the controller hasn't dated it yet.
	All bool
	// Gone says that the machine's Node was gone, and that this is why.
	Gone bool
}

const (
	all  = "all"
	gone = " gone"
)

// Parse reads an entry. One that can't be read revokes everything.
func Parse(text string) Entry {
	at, isGone := strings.CutSuffix(text, gone)
	until, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return Entry{All: true}
	}
	return Entry{Until: until, Gone: isGone}
}

// String is the entry as it is written.
func (e Entry) String() string {
	switch {
	case e.All:
		return all
	case e.Gone:
		return e.Until.UTC().Format(time.RFC3339Nano) + gone
	}
	return e.Until.UTC().Format(time.RFC3339Nano)
}

// Revokes reports whether a certificate issued at a time doesn't hold.
func (e Entry) Revokes(issued time.Time) bool { return e.All || !issued.After(e.Until) }

// IssuedKey is where what is known of a machine as a user says when the certificate was
// issued that it showed (RFC 3339, with nanoseconds).
const IssuedKey = "fairway.dev/certificate-issued"

// SerialRandomBits follow the time of issue in a certificate's serial number.
const SerialRandomBits = 64

// IssuedAt is when one of our authorities issued a certificate. NotBefore lies
// earlier, for clients whose clock is behind.
func IssuedAt(cert *x509.Certificate) time.Time {
	nanoseconds := new(big.Int).Rsh(cert.SerialNumber, SerialRandomBits)
	if !nanoseconds.IsInt64() {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds.Int64())
}
