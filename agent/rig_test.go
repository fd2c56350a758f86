package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/fakeapi"
)

// rig is an agent between an API that isn't ours and a kernel in memory.
type rig struct {
	*machine
	t       *testing.T
	api     *fakeapi.Server
	config  Config
	updates chan Update
	stop    func()
}

const (
	healthAddress  = "127.0.0.1:10256"
	metricsAddress = "127.0.0.1:10249"
)

func newRig(t *testing.T, leftovers ...string) *rig {
	t.Helper()
	api := fakeapi.NewServer()
	api.Rules = fakeapi.NodeProxierOf(33)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	updates := make(chan Update)
	return &rig{
		machine: newMachine(leftovers...), t: t, api: api, updates: updates,
		config: Config{
			API: kube.Tune(&rest.Config{Host: server.URL}), NodeName: "here", Mode: "nftables", VerifyPeriod: time.Hour,
			HealthzAddress: healthAddress, MetricsAddress: metricsAddress, ServiceMetrics: 10, Updates: updates,
			Compile: compile.Config{NodePorts: compile.NodePortAddresses{Primary: true}},
			Log:     slog.New(slog.DiscardHandler),
		},
	}
}

// start runs the agent until the test ends, or stop is called.
func (r *rig) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, r.config, r.kinds()) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("the agent ended: %v", err)
		}
	}
	r.t.Cleanup(r.stop)
}

func (r *rig) do(format string, args ...any) string {
	r.t.Helper()
	text, err := r.api.Do(fmt.Sprintf(format, args...))
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

func (r *rig) apply(object string) { r.t.Helper(); r.do("apply %s", object) }

// service makes a Service with an endpoint, the n-th.
func (r *rig) service(name string, n int, more string) {
	r.t.Helper()
	r.apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"default","name":%q},"spec":{"type":"NodePort",
		"clusterIP":"10.96.0.%d","clusterIPs":["10.96.0.%d"],"ipFamilies":["IPv4"],"ports":[{"port":80,"nodePort":%d,"protocol":"TCP"}]%s}}`,
		name, n, n, 30000+n, more))
	r.slice(name, n, time.Now())
}

func (r *rig) slice(name string, n int, at time.Time) {
	r.t.Helper()
	r.apply(fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"namespace":"default","name":"%s-1",
		"labels":{"kubernetes.io/service-name":%q},"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":%q}},
		"addressType":"IPv4","ports":[{"port":8080,"protocol":"TCP"}],"endpoints":[{"addresses":["10.244.0.%d"],"conditions":{"ready":true},"nodeName":"there"}]}`,
		name, name, at.Format(time.RFC3339Nano), n))
}

func (r *rig) node(address, more string) {
	r.t.Helper()
	r.apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q%s},"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`,
		r.config.NodeName, more, address))
}

// table is what the kernel holds of the mode in force.
func (r *rig) table(mode string) *model.Table {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holds[mode]
}

// serves reports whether the kernel forwards this address and port.
func (r *rig) serves(address string, port uint16) bool {
	t := r.table("nftables")
	return t != nil && t.Lookup(model.Key{Addr: netip.MustParseAddr(address), Port: port, Proto: model.TCP}) != nil
}

func (r *rig) eventually(what string, ok func() bool) { r.t.Helper(); eventually(r.t, what, ok) }

// get asks one of the agent's HTTP ports; 0 if nobody answers.
func get(address, path string) (int, string) {
	response, err := http.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close() //nolint:errcheck // of a response
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

func status(path string, want int) func() bool {
	return func() bool { got, _ := get(healthAddress, path); return got == want }
}

// metric reports whether /metrics has a line with this beginning and value.
func metric(line string) func() bool {
	return func() bool {
		_, text := get(metricsAddress, "/metrics")
		return strings.Contains("\n"+text, "\n"+line+"\n")
	}
}

// events are the reasons of the Events that were written about the node.
func (r *rig) nodeEvents() []string {
	r.t.Helper()
	var list []corev1.Event
	if err := json.Unmarshal([]byte(r.do("events")), &list); err != nil {
		r.t.Fatal(err)
	}
	var reasons []string
	for _, e := range list {
		if e.InvolvedObject.Kind == "Node" {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}
