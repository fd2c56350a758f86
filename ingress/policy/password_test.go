package policy

import "testing"

// TestPasswords: what htpasswd and openssl passwd write.
func TestPasswords(t *testing.T) {
	for name, hash := range map[string]string{
		"apr1":   "$apr1$abcdefgh$FBwExRW4dCc8aL.OvjpIE1",
		"md5":    "$1$abcdefgh$G//4keteveJp0qb8z2DxG/",
		"sha512": "$6$abcdefgh$yVfUwsw5T.JApa8POvClA1pQ5peiq97DUNyXCZN5IrF.BMSkiaLQ5kvpuEm/VQ1Tvh/KV2TcaWh8qinoW5dhA1",
		"SHA":    "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
	} {
		if !KnowsHash(hash) || !MatchesHash(hash, "password") || MatchesHash(hash, "wrong") {
			t.Errorf("%s: known %v, right %v, wrong %v", name, KnowsHash(hash), MatchesHash(hash, "password"), MatchesHash(hash, "wrong"))
		}
	}
	for _, hash := range []string{"", "plain", "$9$x$y", "rqXexS6ZhobKA"} {
		if KnowsHash(hash) || MatchesHash(hash, "x") {
			t.Errorf("%q is known", hash)
		}
	}
}
