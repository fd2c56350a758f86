package server

import (
	"testing"
	"time"

	"github.com/fairway-net/fairway/apiserver"
)

// TestGatewayCredentialIsDue: it is renewed when half of its life is over, when the clock
// was set back, and when the server began anew.
func TestGatewayCredentialIsDue(t *testing.T) {
	t.Parallel()
	var server *apiserver.Server
	a := &gatewayAccount{issuer: ownIssuer{func() *apiserver.Server { return server }}, by: server, issued: time.Now()}
	for after, want := range map[time.Duration]bool{0: false, time.Hour: false, CredentialLife / 2: true, CredentialLife: true, -time.Hour: true} {
		if got := a.due(a.issued.Add(after)); got != want {
			t.Errorf("after %s: %v", after, got)
		}
	}
	if server = new(apiserver.Server); !a.due(a.issued) {
		t.Error("another server has begun")
	}
}
