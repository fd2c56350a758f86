package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayfake "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/fake"

	"github.com/fairway-net/fairway/ingress/certs"
	ingress "github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/engine/native"
	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/watch"
)

// TestUnservedOf: errors are found by the socket that they are about.
func TestUnservedOf(t *testing.T) {
	table := &model.Table{Sockets: []*model.Socket{{Name: "a/b:80"}, {Name: "a/b:8080"}}}
	err := errors.Join(fmt.Errorf("serve %s: %w", "a/b:8080", errors.New("in use")))
	if got := unservedText(unservedOf(table, err)); got != `{"a/b:8080":"in use"}` {
		t.Errorf("unserved %s", got)
	}
	if got := unservedText(unservedOf(table, nil)); got != "" {
		t.Errorf("unserved %s though all is served", got)
	}
}

// TestBusyPort: a port that is in use is said, and opened once it is free, whatever has
// happened in between; one that another Gateway has, or that is no engine's, is not.
func TestBusyPort(t *testing.T) {
	busy, port := busyPort(t)
	core := fake.NewClientset()
	for version, names := range map[string][]string{"v1": {"namespaces", "services"}, "discovery.k8s.io/v1": {"endpointslices"}, gatewayv1.GroupVersion.String(): {"gatewayclasses", "gateways", "httproutes"}} {
		list := &metav1.APIResourceList{GroupVersion: version}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		core.Resources = append(core.Resources, list)
	}
	gateways := gatewayfake.NewSimpleClientset()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	_, err := gateways.GatewayV1().GatewayClasses().Create(ctx, &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "fairway"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: ingress.Controller}}, metav1.CreateOptions{})
	must(err)
	for i, g := range []struct {
		name   string
		target int
	}{{"web", port}, {"evil", port}, {"low", 1024}} {
		meta := metav1.ObjectMeta{Namespace: "shop", Name: g.name, CreationTimestamp: metav1.Unix(int64(i), 0)}
		_, err = gateways.GatewayV1().Gateways("shop").Create(ctx, &gatewayv1.Gateway{ObjectMeta: meta, Spec: gatewayv1.GatewaySpec{GatewayClassName: "fairway", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}}}, metav1.CreateOptions{})
		must(err)
		_, err = core.CoreV1().Services("shop").Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: ingress.ServiceName(g.name), Labels: map[string]string{gatewayv1.GatewayNameLabelKey: g.name}},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt(g.target)}}},
		}, metav1.CreateOptions{})
		must(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	engine, err := native.New(native.Options{Logger: log})
	must(err)
	defer engine.Close(context.Background())
	files, err := certs.New(nil, log)
	must(err)
	g := &gateway{process: newProcess(Config{Logger: log}), engine: engine, certificates: ingress.NewCertificates(), files: files, watch: watch.NewFor(core, gateways, log)}
	following, stop := context.WithCancel(context.Background())
	synced, ended := make(chan struct{}), make(chan struct{}, 2)
	go func() { g.watch.Run(following, func() { close(synced) }); ended <- struct{}{} }()
	<-synced
	go func() { g.follow(following, g.sync(following, true)); ended <- struct{}{} }()
	defer func() { stop(); <-ended; <-ended }()
	await := func(what string, done func() bool) {
		t.Helper()
		for late := range wait.Tries(time.Minute) {
			if done() {
				break
			}
			if late {
				t.Fatalf("not reached: %s; unserved %s, listeners %d, sockets %v", what, g.unserved.text(), len(engine.Listeners()), engine.Sockets())
			}
		}
	}
	await("the port is said to be in use", func() bool { return strings.Contains(g.unserved.text(), "in use") })
	for i := range 5 { // things happen that change nothing
		_, err = core.CoreV1().Services("shop").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("other-%d", i)}}, metav1.CreateOptions{})
		must(err)
	}
	must(busy.Close())
	await("the port is opened, for the Gateway that had it first", func() bool {
		return g.unserved.text() == "" && len(engine.Listeners()) == 1 && engine.Sockets()["shop/web:80"].Port() == uint16(port)
	})
}

// busyPort is a port of the engines' that is in use.
func busyPort(t *testing.T) (net.Listener, int) {
	for port := ingress.LastPort; port >= ingress.FirstPort; port-- {
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			return l, port
		}
	}
	t.Fatal("no port is free")
	return nil, 0
}
