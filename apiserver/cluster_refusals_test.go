package apiserver

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/apiserver/rights"
	"github.com/fairway-net/fairway/apiserver/storage"
	"github.com/fairway-net/fairway/kube/join"
)

// TestServerRefusals: a server that can't join says why in one line, and changes
// nothing; a server token is good for joining only, and a machine's is not.
func TestServerRefusals(t *testing.T) {
	c := newCluster(t)
	one := c.first()
	token := serverToken(t, one, time.Time{})

	plain := c.config(2)
	plain.ClusterInit, plain.BindAddress = true, DefaultConfig().BindAddress
	refused(t, plain, "give --bind-address and --advertise-address")
	parsed, err := join.ParseServerToken(token)
	if err != nil {
		t.Fatal(err)
	}
	machine := parsed
	machine.Server = false
	refused(t, c.joining(2, one, machine.String()), "this one is for machines")
	wrong := parsed
	wrong.Secret = strings.Repeat("x", 16)
	refused(t, c.joining(2, one, wrong.String()), "server token "+parsed.ID+" is not known")
	refused(t, c.joining(2, one, serverToken(t, one, time.Now().Add(-time.Hour))), "expired at")
	other := parsed
	other.CAHash = "sha256:" + strings.Repeat("0", 64)
	refused(t, c.joining(2, one, other.String()), "isn't the one in the token")
	named := c.joining(2, one, token)
	named.ServerName = "s1"
	refused(t, named, "a server named s1 is at")
	family := c.joining(2, one, token)
	family.AdvertiseAddress = netip.MustParseAddr("fd00::2")
	refused(t, family, "reach each other by one IP family")
	for _, nowhere := range []string{"0.0.0.0", "::", "224.0.0.1", "fe80::1"} {
		lost := c.joining(2, one, token)
		lost.AdvertiseAddress = netip.MustParseAddr(nowhere)
		refused(t, lost, "other machines can't reach it")
	}
	without := c.joining(2, one, "")
	refused(t, without, "--token-file: not given")
	ranged := c.joining(2, one, token)
	ranged.NodePortRange.Base++
	refused(t, ranged, "the cluster's is 30000-32767")

	// A directory that is another server's, and one with the store of another.
	elsewhere := c.joining(3, one, token)
	alone := start(t, withoutJoin(elsewhere))
	if err := alone.Close(); err != nil {
		t.Fatal(err)
	}
	refused(t, elsewhere, "has a store of its own")
	if err := os.RemoveAll(elsewhere.etcdDir()); err != nil {
		t.Fatal(err)
	}
	refused(t, elsewhere, "belongs to another cluster than the token")

	c.tokenRights(one, parsed)
}

func withoutJoin(c Config) Config {
	c.Join, c.Token = "", ""
	return c
}

// tokenRights expects that a server token can't read the API, and that nobody without one
// can have an API server join: neither a machine's token, with which agents join, nor a
// node, nor an anonymous client.
func (c *cluster) tokenRights(s *Server, server join.Token) {
	c.Helper()
	as := func(bearer string) kubernetes.Interface {
		api, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL(), BearerToken: bearer, TLSClientConfig: rest.TLSClientConfig{CAData: s.CA()}})
		if err != nil {
			c.Fatal(err)
		}
		return api
	}
	joining := as(server.Bearer())
	if _, err := joining.CoreV1().Services("").List(within(c), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		c.Errorf("a server token lists Services: %v", err)
	}
	for _, path := range []string{MembersPath, ServerTokensPath, SnapshotPath, rights.JoinPath} {
		if _, err := joining.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(within(c)); !apierrors.IsForbidden(err) {
			c.Errorf("a server token reads %s: %v", path, err)
		}
	}
	machineToken := join.NewToken(server.CAHash)
	if _, err := client(c, s).CoreV1().Secrets("kube-system").Create(within(c), machineToken.Object("", time.Time{}), metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	joinRequest := []byte(`{"name":"s9","peerURL":"https://192.0.2.9:2380"}`)
	node, err := s.NodeKubeconfig("n1")
	if err != nil {
		c.Fatal(err)
	}
	for who, api := range map[string]kubernetes.Interface{"a machine's token": as(machineToken.Bearer()), "nobody": as(""), "a node": kubeconfigClient(c, node)} {
		err := api.CoreV1().RESTClient().Post().AbsPath(rights.JoinPath).Body(joinRequest).Do(within(c)).Error()
		if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			c.Errorf("%s joins as a server: %v", who, err)
		}
	}
	if got := members(c, s); len(got) != 1 {
		c.Errorf("servers after others asked: %v", got)
	}
}

// TestServerTokenIsForOne: a server token gives the cluster's keys to the first server that
// uses it and that answers at the address it names. A second server gets none, and neither
// does somebody who has only read the token.
func TestServerTokenIsForOne(t *testing.T) {
	c := newCluster(t)
	one := c.first()
	token := serverToken(t, one, time.Time{})
	parsed, err := join.ParseServerToken(token)
	if err != nil {
		t.Fatal(err)
	}
	thief, err := kubernetes.NewForConfig(&rest.Config{Host: one.URL(), BearerToken: parsed.Bearer(), TLSClientConfig: rest.TLSClientConfig{CAData: one.CA()}})
	if err != nil {
		t.Fatal(err)
	}
	asks := func(when string, want string) {
		t.Helper()
		silent := c.config(9)
		request := joinRequest{Name: "s9", PeerURL: storage.PeerURL(netip.AddrPortFrom(silent.BindAddress, uint16(silent.PeerPort))), Key: "sha256:00", Wanted: silent.shared()}
		body, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		data, err := thief.CoreV1().RESTClient().Post().AbsPath(rights.JoinPath).Body(body).DoRaw(within(t))
		if err == nil || !strings.Contains(string(data)+err.Error(), want) || strings.Contains(string(data), "ca.key") {
			t.Errorf("%s: who has the token and no server is answered %v: %s", when, err, data)
		}
	}
	asks("before", "doesn't reach s9")
	if list := members(t, one); len(list) != 1 {
		t.Errorf("who doesn't answer is a member: %v", list)
	}
	start(t, c.joining(2, one, token))
	asks("after", "doesn't reach s9")
	refused(t, c.joining(3, one, token), "is used by another server")
	if list, err := one.listServerTokens(t.Context()); err != nil || len(list) != 1 || !strings.HasPrefix(list[0].Holder, "s2 at ") {
		t.Errorf("tokens: %v, %v", list, err)
	}
}

// TestJoinInterrupted: a server that is killed anywhere on its way into a cluster
// is in it after the same command again.
func TestJoinInterrupted(t *testing.T) {
	c := newCluster(t)
	one := c.first()
	config := c.joining(2, one, serverToken(t, one, time.Time{}))

	// Announced, and no more: its keys were not even written.
	ctx := within(t)
	half := config
	if err := Prepare(ctx, &half); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pki/client-ca.crt", "pki/sa.key", "server.json"} {
		if err := os.Remove(filepath.Join(config.DataDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, c.joining(3, one, config.Token+"x"), "--token")

	// It has all that it needs, but doesn't know it is a member.
	if err := Prepare(ctx, &half); err != nil { // half is settled: nothing to do
		t.Fatal(err)
	}
	half = config
	if err := Prepare(ctx, &half); err != nil {
		t.Fatal(err)
	}
	refused(t, withoutJoin(config), "run the same command again, with --join and --token-file")

	// Interrupted while its store starts.
	brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	if s, err := Start(brief, config); err == nil {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	two := start(t, config)
	eventually(t, "that both are servers", func() bool {
		list := members(t, two)
		return len(list) == 2 && list[0].Role != "joining" && list[1].Role != "joining"
	})
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	// Its store lost, it must not begin one of its own.
	if err := os.RemoveAll(config.etcdDir()); err != nil {
		t.Fatal(err)
	}
	refused(t, withoutJoin(config), "is gone, and the cluster may go on without it")
}

func kubeconfigClient(t testing.TB, data []byte) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return api
}
