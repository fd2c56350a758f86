package policy

import (
	"crypto/sha1" //nolint:gosec // what htpasswd -s writes
	"crypto/subtle"
	"encoding/base64"
	"strings"

	"github.com/GehirnInc/crypt"
	_ "github.com/GehirnInc/crypt/apr1_crypt"   // htpasswd's default
	_ "github.com/GehirnInc/crypt/md5_crypt"    // $1$
	_ "github.com/GehirnInc/crypt/sha256_crypt" // $5$
	_ "github.com/GehirnInc/crypt/sha512_crypt" // $6$
	"golang.org/x/crypto/bcrypt"
)

// KnowsHash reports whether MatchesHash can read what htpasswd, or mkpasswd, has written.
func KnowsHash(hash string) bool {
	if strings.HasPrefix(hash, "{SHA}") || crypt.IsHashSupported(hash) {
		return true
	}
	_, err := bcrypt.Cost([]byte(hash))
	return err == nil
}

// MatchesHash compares a password with a hash. One that isn't known matches nothing.
func MatchesHash(hash, password string) bool {
	if sum, ok := strings.CutPrefix(hash, "{SHA}"); ok {
		own := sha1.Sum([]byte(password)) //nolint:gosec // as above
		return subtle.ConstantTimeCompare([]byte(base64.StdEncoding.EncodeToString(own[:])), []byte(sum)) == 1
	}
	if crypt.IsHashSupported(hash) {
		return crypt.NewFromHash(hash).Verify(hash, []byte(password)) == nil
	}
	return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
}
