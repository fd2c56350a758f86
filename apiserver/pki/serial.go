package pki

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"time"

	"github.com/fairway-net/fairway/internal/revocation"
)

// serialRandomBits follow the time in a serial number.
const serialRandomBits = revocation.SerialRandomBits

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
