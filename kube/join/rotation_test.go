//go:build servers && !race

// As keep_test.go: client-go's exchange of certificates isn't for the race detector.

package join_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/apiserver/identity"
	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/controller"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/balance"
	"github.com/fairway-net/fairway/kube/join"
	"github.com/fairway-net/fairway/test/wait"
)

// servers are three of a cluster, with their controllers.
type servers struct {
	*testing.T
	configs [3]apiserver.Config

	mu      sync.Mutex
	running [3]*apiserver.Server
	stop    [3]func()
}

func startServers(t *testing.T) *servers {
	t.Helper()
	c := &servers{T: t}
	network := [2]byte{byte(2 + rand.IntN(250)), byte(rand.IntN(256))}
	for i := range c.configs {
		config := apiserver.DefaultConfig()
		config.DataDir, config.ServerName = t.TempDir(), fmt.Sprintf("s%d", i+1)
		config.BindAddress = netip.AddrFrom4([4]byte{127, network[0], network[1], byte(i + 1)})
		config.ClusterInit = i == 0
		if i > 0 {
			config.Join, config.Token = c.server(0).URL(), c.serverToken()
		}
		c.configs[i] = config
		c.start(i)
	}
	t.Cleanup(func() {
		for i := range c.running {
			c.end(i)
		}
	})
	return c
}

func (c *servers) serverToken() string {
	c.Helper()
	hash, err := join.HashPEM(c.server(0).CA())
	if err != nil {
		c.Fatal(err)
	}
	token := join.NewToken(hash)
	token.Server = true
	body, err := json.Marshal(identity.ServerToken{ID: token.ID, Hash: identity.HashServerToken(token.Bearer())})
	if err != nil {
		c.Fatal(err)
	}
	if err := c.admin(0).CoreV1().RESTClient().Post().AbsPath(apiserver.ServerTokensPath).Body(body).Do(c.Context()).Error(); err != nil {
		c.Fatal(err)
	}
	return token.String()
}

func (c *servers) start(i int) {
	c.Helper()
	server, err := apiserver.Start(context.WithoutCancel(c.Context()), c.configs[i])
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	done := make(chan error, 1)
	go func() {
		done <- controller.Run(ctx, server.LoopbackConfig(), controller.Options{
			Signer: server.MachineSigner(), RootCA: server.CA(), SecretToken: server,
			Lease: &controller.Lease{Namespace: "kube-system", Name: "fairway-controllers", Identity: c.configs[i].ServerName},
		})
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[i] = server
	c.stop[i] = func() {
		cancel()
		if err := <-done; err != nil {
			c.Error(err)
		}
		if err := server.Close(); err != nil {
			c.Error(err)
		}
	}
}

func (c *servers) end(i int) {
	c.mu.Lock()
	stop := c.stop[i]
	c.running[i], c.stop[i] = nil, nil
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (c *servers) server(i int) *apiserver.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[i]
}

// restart restarts all servers, one after the other.
func (c *servers) restart() {
	c.Helper()
	for i := range c.configs {
		c.end(i)
		c.start(i)
	}
}

// admin is an administrator's client, by the file that the server has written.
func (c *servers) admin(i int) *kubernetes.Clientset {
	c.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", apiserver.AdminKubeconfig(c.configs[i].DataDir))
	if err != nil {
		c.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.Fatal(err)
	}
	return client
}

func (c *servers) step(i int, step apiserver.RotationStep) (*apiserver.RotationState, error) {
	c.Helper()
	body, err := json.Marshal(step)
	if err != nil {
		c.Fatal(err)
	}
	answer := c.admin(i).CoreV1().RESTClient().Post().AbsPath(apiserver.AuthoritiesPath).Body(body).Do(c.Context())
	if err := answer.Error(); err != nil {
		return nil, err
	}
	data, err := answer.Raw()
	if err != nil {
		return nil, err
	}
	state := &apiserver.RotationState{}
	return state, json.Unmarshal(data, state)
}

// refused expects that a step isn't taken, for a reason.
func (c *servers) refused(i int, step apiserver.RotationStep, want string) {
	c.Helper()
	if _, err := c.step(i, step); err == nil || !strings.Contains(err.Error(), want) {
		c.Errorf("%s %s: %v, want %q", step.Authority, step.Step, err, want)
	}
}

// take takes a step of all authorities, at one server after the other, and each once more.
func (c *servers) take(step string, phase pki.Phase) {
	c.Helper()
	for i, name := range pki.Rotated {
		for _, at := range []int{i % 3, (i + 1) % 3} {
			state, err := c.step(at, apiserver.RotationStep{Authority: name, Step: step})
			if err != nil || state.Phase != phase || len(state.Restart) != 3 {
				c.Fatalf("%s %s: %+v, %v", name, step, state, err)
			}
		}
	}
	for i, config := range c.configs {
		for _, name := range pki.Rotated {
			wait.Until(c, 2*time.Minute, fmt.Sprintf("server %d has the files of %s after %s", i+1, name, step), func() bool {
				r, err := pki.OpenRotation(filepath.Join(config.DataDir, "pki"), name)
				return err == nil && r.Phase == phase
			})
		}
	}
}

// load is what goes on while authorities are replaced: writes by administrators, and
// machines that read their Node.
type load struct {
	c       *servers
	ctx     context.Context
	running sync.WaitGroup

	mu      sync.Mutex
	written map[string]bool
	seen    map[string]int                   // requests that were answered, by machine
	admins  map[string]*kubernetes.Clientset // by their kubeconfig's text
	lost    []string
}

func (l *load) lose(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = append(l.lost, fmt.Sprintf(format, args...))
}

// The load: writes a second by all writers, at most, and machines that each read ten times
// a second.
const (
	machines = 20
	writers  = 8
	writes   = 200
)

// write makes ConfigMaps and Secrets, at another server if one is away.
func (l *load) write(who int) {
	tick := time.NewTicker(writers * time.Second / writes)
	defer tick.Stop()
	for n := 0; l.ctx.Err() == nil; n++ {
		<-tick.C
		name := fmt.Sprintf("w%d-%d", who, n)
		at := who
		for late := range wait.Tries(time.Minute) {
			err := l.writeOnce(at%3, name)
			if err == nil || apierrors.IsAlreadyExists(err) {
				break
			}
			if late || distrust(err) {
				l.lose("write %s: %v", name, err)
				return
			}
			at++
		}
		l.mu.Lock()
		l.written[name] = true
		l.mu.Unlock()
	}
}

func (l *load) writeOnce(at int, name string) error {
	client, err := l.admin(at)
	if err != nil {
		return err
	}
	ctx, meta := context.WithoutCancel(l.ctx), metav1.ObjectMeta{Name: name}
	if strings.HasSuffix(name, "0") {
		_, err = client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"name": name}}, metav1.CreateOptions{})
	} else {
		_, err = client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
	}
	return err
}

// admin is an administrator's client, made anew when the server has written its file anew.
func (l *load) admin(at int) (*kubernetes.Clientset, error) {
	text, err := os.ReadFile(apiserver.AdminKubeconfig(l.c.configs[at].DataDir))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if client := l.admins[string(text)]; client != nil {
		return client, nil
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	l.admins[string(text)], err = kubernetes.NewForConfig(config)
	return l.admins[string(text)], err
}

// distrust says whether an error is that one end doesn't believe the other.
func distrust(err error) bool {
	return err != nil && (apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || strings.Contains(err.Error(), "x509") || strings.Contains(err.Error(), "tls:"))
}

// machine joins, keeps its certificate and asks for Services.
func (l *load) machine(name string) (dir string) {
	c := l.c
	dir = c.TempDir()
	token := join.NewToken(hashOf(c, c.server(0).CA()))
	if _, err := c.admin(0).CoreV1().Secrets("kube-system").Create(l.ctx, token.Object("", time.Time{}), metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if err := join.Join(l.ctx, join.Options{Server: c.server(0).URL(), Token: token.String(), Node: name, Dir: dir, Version: apiserver.KubernetesVersion}); err != nil {
		c.Fatal(err)
	}
	config, err := kube.Config(join.Kubeconfig(dir))
	if err != nil {
		c.Fatal(err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	log := slog.New(slog.DiscardHandler)
	balanced, err := balance.Attach(config, filepath.Join(dir, balance.FileName), log)
	if err != nil {
		c.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.Fatal(err)
	}
	// A machine that makes no Node within ten minutes loses its certificate.
	if _, err := client.CoreV1().Nodes().Create(l.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	l.running.Go(func() { balanced.Run(l.ctx, client) })
	l.running.Go(func() {
		if err := join.Keep(l.ctx, dir, config, log); err != nil {
			l.lose("%s: %v", name, err)
		}
	})
	l.running.Go(func() {
		for tick := time.NewTicker(100 * time.Millisecond); l.ctx.Err() == nil; <-tick.C {
			_, err := client.CoreV1().Services("").List(l.ctx, metav1.ListOptions{ResourceVersion: "0"})
			if distrust(err) && l.ctx.Err() == nil {
				l.lose("%s is out of touch: %v", name, err)
			}
			l.mu.Lock()
			if err == nil {
				l.seen[name]++
			}
			l.mu.Unlock()
		}
	})
	return dir
}

func hashOf(t *servers, ca []byte) string {
	t.Helper()
	hash, err := join.HashPEM(ca)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// TestReplaceAuthorities: all authorities and the key of ServiceAccounts are replaced
// while three servers take writes and machines ask: nobody is refused, and no write is
// lost. Afterwards the old ones are worth nothing. Steps out of turn are refused.
func TestReplaceAuthorities(t *testing.T) {
	join.LookPeriod = 200 * time.Millisecond
	t.Cleanup(func() { join.LookPeriod = 10 * time.Minute })
	c := startServers(t)
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{c: c, ctx: ctx, written: map[string]bool{}, seen: map[string]int{}, admins: map[string]*kubernetes.Clientset{}}
	end := func() {
		cancel()
		l.running.Wait()
	}
	t.Cleanup(end)
	dirs := map[string]string{}
	for n := range machines {
		name := fmt.Sprintf("n%d", n+1)
		dirs[name] = l.machine(name)
	}
	for who := range writers {
		l.running.Go(func() { l.write(who) })
	}

	old := loadOld(c, dirs["n1"])
	clients := apiserver.RotationStep{Authority: pki.ClientsName}
	with := func(step string) apiserver.RotationStep {
		return apiserver.RotationStep{Authority: clients.Authority, Step: step}
	}
	c.refused(0, apiserver.RotationStep{Authority: "etcd", Step: apiserver.StepTrust}, "it is one of")
	c.refused(0, with("forget"), "it is one of")
	c.refused(0, with(apiserver.StepUse), "make it first")
	c.refused(0, with(apiserver.StepFinish), "no replacement is under way")
	c.end(2)
	wait.Until(t, 2*time.Minute, "a step is refused while a server is down", func() bool {
		_, err := c.step(0, with(apiserver.StepTrust))
		return err != nil && strings.Contains(err.Error(), "s3 (it is down)")
	})
	c.start(2)

	c.take(apiserver.StepTrust, pki.Trusted)
	c.refused(0, with(apiserver.StepUse), "s1, s2, s3; restart them first")
	c.restart()
	c.take(apiserver.StepUse, pki.Used)
	c.refused(0, with(apiserver.StepFinish), "restart them first")
	c.restart()
	wait.Until(t, 2*time.Minute, "the machines have certificates of the new authority", func() bool {
		for _, dir := range dirs {
			if issuer := pair(t, dir).Leaf.Issuer.String(); issuer == old.issuer {
				return false
			}
		}
		return true
	})
	if err := old.asks(c, 1); err != nil {
		t.Errorf("a certificate of the old authority, before the end: %v", err)
	}
	wait.Until(t, 2*time.Minute, "the server's list has who came with it", func() bool {
		_, err := c.step(0, with(apiserver.StepFinish))
		return err != nil && strings.Contains(err.Error(), "system:node:n1")
	})
	for _, name := range pki.Rotated {
		if _, err := c.step(1, apiserver.RotationStep{Authority: name, Step: apiserver.StepFinish, Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	c.take(apiserver.StepFinish, pki.Steady)
	c.restart()

	c.rewriteSecrets()

	if err := old.asks(c, 1); !apierrors.IsUnauthorized(err) {
		t.Errorf("a certificate of the old authority, after the end: %v", err)
	}
	if strings.Contains(string(c.server(0).CA()), old.ca) {
		t.Error("the old authority of servers is still told to clients")
	}
	l.mu.Lock()
	before := map[string]int{}
	for name, n := range l.seen {
		before[name] = n
	}
	l.mu.Unlock()
	for name := range dirs {
		wait.Until(t, 2*time.Minute, name+" goes on", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.seen[name] > before[name]+10
		})
	}
	end()
	l.judge()
}

// judge looks whether all that was written is there, at each server.
func (l *load) judge() {
	c := l.c
	for _, lost := range l.lost[:min(len(l.lost), 10)] {
		c.Error(lost)
	}
	for i := range c.configs {
		missing := maps.Clone(l.written)
		list, err := c.admin(i).CoreV1().ConfigMaps("default").List(c.Context(), metav1.ListOptions{})
		if err != nil {
			c.Fatal(err)
		}
		for k := range list.Items {
			delete(missing, list.Items[k].Name)
		}
		secrets, err := c.admin(i).CoreV1().Secrets("default").List(c.Context(), metav1.ListOptions{})
		if err != nil {
			c.Fatal(err)
		}
		for _, s := range secrets.Items {
			if string(s.Data["name"]) == s.Name {
				delete(missing, s.Name)
			}
		}
		c.Logf("server %d: %d ConfigMaps and %d Secrets", i+1, len(list.Items), len(secrets.Items))
		if len(missing) > 0 || len(l.written) < 1000 {
			c.Errorf("of %d writes %d are not at server %d", len(l.written), len(missing), i+1)
		}
	}
}

// rewriteSecrets has all servers read and write Secrets with a new key, as the commands
// `fairway server secrets rewrite` do, and then without the old one.
func (c *servers) rewriteSecrets() {
	c.Helper()
	keys := func(i int) string { return apiserver.EncryptionKeys(c.configs[i].DataDir) }
	use := func(i int) error {
		config, err := clientcmd.BuildConfigFromFlags("", apiserver.AdminKubeconfig(c.configs[i].DataDir))
		if err != nil {
			c.Fatal(err)
		}
		return apiserver.UseSecretsKey(c.Context(), c.configs[i].DataDir, config)
	}
	copyKeys := func() {
		text, err := os.ReadFile(keys(0))
		for i := 1; i < len(c.configs) && err == nil; i++ {
			err = pki.WriteFile(keys(i), text, 0o600)
		}
		if err != nil {
			c.Fatal(err)
		}
	}
	before, err := os.ReadFile(keys(0))
	if err != nil {
		c.Fatal(err)
	}
	if clustered, err := apiserver.AddSecretsKey(c.configs[0].DataDir); err != nil || !clustered {
		c.Fatalf("of a cluster: %t, %v", clustered, err)
	}
	if err := use(0); err == nil || !strings.Contains(err.Error(), "doesn't read with the last key") {
		c.Errorf("a key that other servers don't have: %v", err)
	}
	copyKeys()
	c.restart()
	for i := range c.configs {
		if err := use(i); err != nil {
			c.Fatal(err)
		}
	}
	c.restart()
	config, err := clientcmd.BuildConfigFromFlags("", apiserver.AdminKubeconfig(c.configs[1].DataDir))
	if err != nil {
		c.Fatal(err)
	}
	n, err := apiserver.RewriteSecrets(c.Context(), config)
	if err != nil || n == 0 {
		c.Fatalf("%d Secrets were written anew: %v", n, err)
	}
	c.Logf("%d Secrets were written anew", n)
	old := strings.Fields(string(before))[0]
	text, err := os.ReadFile(keys(0))
	if err != nil {
		c.Fatal(err)
	}
	var rest []string
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, old) {
			rest = append(rest, line)
		}
	}
	if len(rest) != 1 {
		c.Fatalf("%d keys without the old one", len(rest))
	}
	if err := pki.WriteFile(keys(0), []byte(rest[0]), 0o600); err != nil {
		c.Fatal(err)
	}
	copyKeys()
	c.restart()
}

// oldCredential is one of before the replacement.
type oldCredential struct {
	issuer, ca string
	cert, key  []byte
}

func loadOld(c *servers, dir string) *oldCredential {
	c.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", join.Kubeconfig(dir))
	if err == nil {
		err = rest.LoadTLSFiles(config)
	}
	if err != nil {
		c.Fatal(err)
	}
	return &oldCredential{issuer: pair(c.T, dir).Leaf.Issuer.String(), ca: string(config.CAData), cert: config.CertData, key: config.KeyData}
}

// asks asks a server that is known by what it says of itself now.
func (o *oldCredential) asks(c *servers, i int) error {
	server := c.server(i)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: server.CA(), CertData: o.cert, KeyData: o.key}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Services("").List(c.Context(), metav1.ListOptions{})
	return err
}
