package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/apiserver/identity"
	"github.com/fairway-net/fairway/kube/join"
)

// cluster is three servers on loopback addresses of their own, so that no two
// tests meet at a port.
type cluster struct {
	testing.TB
	network [2]byte
}

func newCluster(t testing.TB) *cluster {
	return &cluster{t, [2]byte{byte(2 + rand.IntN(250)), byte(rand.IntN(256))}}
}

// config is that of the server with a number from 1.
func (c *cluster) config(n int) Config {
	config := testConfig(c)
	config.BindAddress = netip.AddrFrom4([4]byte{127, c.network[0], c.network[1], byte(n)})
	config.ServerName = fmt.Sprintf("s%d", n)
	return config
}

// first starts the server that begins the cluster.
func (c *cluster) first() *Server {
	c.Helper()
	config := c.config(1)
	config.ClusterInit = true
	return start(c, config)
}

// joining is the configuration of a server that joins.
func (c *cluster) joining(n int, at *Server, token string) Config {
	config := c.config(n)
	config.Join, config.Token = at.URL(), token
	return config
}

// serverToken makes a token by which servers join.
func serverToken(t testing.TB, s *Server, expires time.Time) string {
	t.Helper()
	return serverTokenBy(t, client(t, s), s.CA(), expires)
}

// serverTokenBy makes one by an administrator's client.
func serverTokenBy(t testing.TB, admin kubernetes.Interface, ca []byte, expires time.Time) string {
	t.Helper()
	hash, err := join.HashPEM(ca)
	if err != nil {
		t.Fatal(err)
	}
	token := join.NewToken(hash)
	token.Server = true
	data, err := json.Marshal(identity.ServerToken{ID: token.ID, Hash: identity.HashServerToken(token.Bearer()), Expires: expires})
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.CoreV1().RESTClient().Post().AbsPath(ServerTokensPath).Body(data).Do(within(t)).Error(); err != nil {
		t.Fatal(err)
	}
	return token.String()
}

func members(t testing.TB, s *Server) []Member {
	t.Helper()
	data, err := client(t, s).RESTClient().Get().AbsPath(MembersPath).DoRaw(within(t))
	if err != nil {
		t.Fatal(err)
	}
	var list []Member
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestThreeServers: a server that was alone becomes the first of three; what was
// stored is there on each, each is an endpoint of the API, and one can be
// removed and replaced.
func TestThreeServers(t *testing.T) {
	c := newCluster(t)
	config := c.config(1)
	alone := start(t, config)
	if _, err := client(t, alone).CoreV1().Services("default").Create(within(t), nodePortService("before"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if list := members(t, alone); len(list) != 1 || list[0].Role != "alone" {
		t.Errorf("servers of one that is alone: %v", list)
	}
	refused(t, c.joining(2, alone, serverToken(t, alone, time.Time{})), "this server is alone: restart it with --cluster-init")
	if err := alone.Close(); err != nil {
		t.Fatal(err)
	}
	config.ClusterInit = true
	one := start(t, config)
	two := start(t, c.joining(2, one, serverToken(t, one, time.Time{})))
	token := serverToken(t, one, time.Time{})
	three := start(t, c.joining(3, two, token))
	servers := []*Server{one, two, three}
	for _, s := range servers {
		if _, err := client(t, s).CoreV1().Services("default").Get(within(t), "before", metav1.GetOptions{}); err != nil {
			t.Errorf("%s: %v", s.URL(), err)
		}
		eventually(t, "that the API's endpoints are all three", func() bool { return len(apiAddresses(t, s)) == 3 })
	}
	eventually(t, "that all three are listed", func() bool {
		said := fmt.Sprint(members(t, two))
		return strings.Count(said, "follower") == 2 && strings.Count(said, "leader") == 1 && strings.Count(said, one.URL()) == 1
	})

	// One goes for good, and another takes its place.
	if err := three.Close(); err != nil {
		t.Fatal(err)
	}
	refused(t, c.joining(3, one, token), "fairway server members remove s3")
	if err := client(t, one).RESTClient().Delete().AbsPath(MembersPath).Param("name", "s3").Do(within(t)).Error(); err != nil {
		t.Fatal(err)
	}
	start(t, c.joining(3, one, token))
	if list := members(t, two); len(list) != 3 {
		t.Errorf("servers after one was replaced: %v", list)
	}
}

func apiAddresses(t testing.TB, s *Server) []string {
	t.Helper()
	slices, err := client(t, s).DiscoveryV1().EndpointSlices("default").List(within(t), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			out = append(out, e.Addresses...)
		}
	}
	return out
}

// refused expects that a server doesn't start, for a reason of one line.
func refused(t testing.TB, config Config, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := Start(ctx, config)
	if err == nil {
		t.Errorf("the server started, but should have said %q", want)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("the server says %q, want one line with %q", err, want)
	}
}
