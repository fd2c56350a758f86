package pki

import (
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
	"time"
)

// serialRandomBits follow the time in a serial number.
const serialRandomBits = 64

// newSerial returns a serial number that no other certificate has (RFC 5280
// wants at most 20 bytes): the time in nanoseconds, then random bits.
func newSerial(now time.Time) (*big.Int, error) {
	random, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialRandomBits))
	if err != nil {
		return nil, fmt.Errorf("choose certificate serial number: %w", err)
	}
	serial := new(big.Int).Lsh(big.NewInt(now.UnixNano()), serialRandomBits)
	return serial.Or(serial, random), nil
}

// IssuedAt is when one of our authorities issued a certificate. NotBefore lies
// earlier, for clients whose clock is behind.
func IssuedAt(cert *x509.Certificate) time.Time {
	nanoseconds := new(big.Int).Rsh(cert.SerialNumber, serialRandomBits)
	if !nanoseconds.IsInt64() {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds.Int64())
}
