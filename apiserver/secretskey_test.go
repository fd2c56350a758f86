package apiserver

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/apiserver/pki"
)

// twoServers are two of a cluster, whose keys of Secrets are changed.
type twoServers struct {
	*testing.T
	configs [2]Config
	servers [2]*Server
	secrets int // that were written
}

func startTwo(t *testing.T) *twoServers {
	t.Helper()
	c := newCluster(t)
	two := &twoServers{T: t}
	two.configs[0] = c.config(1)
	two.configs[0].ClusterInit = true
	two.servers[0] = start(t, two.configs[0])
	two.configs[1] = c.joining(2, two.servers[0], serverToken(t, two.servers[0], time.Time{}))
	two.servers[1] = start(t, two.configs[1])
	return two
}

// check has each server write a Secret, and read all.
func (two *twoServers) check(when string) {
	two.Helper()
	for _, s := range two.servers {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}, StringData: map[string]string{"k": "v"}}
		if _, err := client(two, s).CoreV1().Secrets("default").Create(within(two), secret, metav1.CreateOptions{}); err != nil {
			two.Fatal(err)
		}
		two.secrets++
	}
	for i, s := range two.servers {
		list, err := client(two, s).CoreV1().Secrets("default").List(within(two), metav1.ListOptions{})
		if err != nil || len(list.Items) < two.secrets {
			two.Errorf("%s: server %d reads %d of %d Secrets: %v", when, i+1, len(list.Items), two.secrets, err)
		}
		if err := client(two, s).RESTClient().Get().AbsPath("/readyz").Do(within(two)).Error(); err != nil {
			two.Errorf("%s: server %d isn't ready: %v", when, i+1, err)
		}
	}
}

func (two *twoServers) stop(i int) {
	two.Helper()
	if err := two.servers[i].Close(); err != nil {
		two.Fatal(err)
	}
}

func (two *twoServers) restart(i int) {
	two.Helper()
	two.stop(i)
	two.servers[i] = start(two, two.configs[i])
}

func (two *twoServers) keys(i int) string {
	two.Helper()
	data, err := os.ReadFile(EncryptionKeys(two.configs[i].DataDir))
	if err != nil {
		two.Fatal(err)
	}
	return string(data)
}

func (two *twoServers) setKeys(i int, keys string) {
	two.Helper()
	if err := os.WriteFile(EncryptionKeys(two.configs[i].DataDir), []byte(keys), 0o600); err != nil {
		two.Fatal(err)
	}
}

// use has a server use the new key, or refuse to for a reason.
func (two *twoServers) use(i int, when, refusal string) {
	two.Helper()
	err := UseSecretsKey(two.Context(), two.configs[i].DataDir, two.servers[i].LoopbackConfig())
	if refusal == "" && err != nil || refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)) {
		two.Errorf("%s: %v, want %q", when, err, refusal)
	}
}

// TestNewSecretsKey: two servers of a cluster get a new key of Secrets. Each reads at every
// step what the other has written, and steps out of turn are refused.
func TestNewSecretsKey(t *testing.T) {
	t.Parallel()
	two := startTwo(t)
	// The keys of an authority are encrypted with the same key.
	step := []byte(`{"authority":"` + pki.AccountKeys + `","step":"trust"}`)
	if err := client(t, two.servers[0]).CoreV1().RESTClient().Post().AbsPath(AuthoritiesPath).Body(step).Do(within(t)).Error(); err != nil {
		t.Fatal(err)
	}
	two.check("before")
	if clustered, err := AddSecretsKey(two.configs[0].DataDir); err != nil || !clustered {
		t.Fatalf("a new key: %v, of a cluster: %v", err, clustered)
	}
	const behind = "doesn't read with the last key"
	two.use(0, "nobody has it", behind)
	two.restart(0)
	two.check("one reads")
	two.use(0, "one has it", "server s2 "+behind)
	two.setKeys(1, two.keys(0))
	two.use(0, "the other isn't restarted", "server s2 "+behind)
	two.restart(1)
	two.check("both read")
	two.use(0, "both read", "")
	two.restart(0)
	two.check("one writes")
	two.use(1, "one writes", "")
	two.restart(1)
	two.check("both write")
	two.dropOldKey()
}

// dropOldKey takes the old key away: a server that needs it refuses to start, and nothing
// needs it once what was encrypted with it is written anew.
func (two *twoServers) dropOldKey() {
	two.Helper()
	both := two.keys(1)
	first, _, _ := strings.Cut(both, "\n")
	two.stop(1)
	two.setKeys(1, first)
	refused(two, two.configs[1], "Secrets (or authorities' keys) are encrypted with a key named")
	two.setKeys(1, both)
	two.servers[1] = start(two, two.configs[1])
	if n, err := RewriteSecrets(two.Context(), two.servers[0].LoopbackConfig()); err != nil || n < two.secrets {
		two.Errorf("%d of %d Secrets are written anew: %v", n, two.secrets, err)
	}
	for i := range two.servers {
		two.setKeys(i, first)
		two.restart(i)
	}
	two.check("the old key is gone")
	for i, s := range two.servers {
		for _, name := range pki.Rotated {
			if _, err := s.readRotation(two.Context(), name); err != nil {
				two.Errorf("server %d: %v", i+1, err)
			}
		}
	}
}
