package native

import (
	"crypto/sha1" //nolint:gosec // what htpasswd -s writes
	"crypto/subtle"
	"encoding/base64"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

// matchesHash compares a password with what htpasswd writes: bcrypt or {SHA}.
// Other forms match nothing.
func matchesHash(hash, password string) bool {
	if sum, ok := strings.CutPrefix(hash, "{SHA}"); ok {
		own := sha1.Sum([]byte(password)) //nolint:gosec // as above
		return subtle.ConstantTimeCompare([]byte(base64.StdEncoding.EncodeToString(own[:])), []byte(sum)) == 1
	}
	return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
}
