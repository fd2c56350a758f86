package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// churnPause is between changes of others while changes are measured.
const churnPause = 50 * time.Millisecond

// gatewayTimeout is how long a change of a route may take to be in force.
const gatewayTimeout = 30 * time.Second

// measureChanges takes the time from a write to the first request that goes by
// it, while other routes and endpoints change too.
func (g *gateways) measureChanges(ctx context.Context, c *contender) error {
	churning, stop := context.WithCancel(ctx)
	churned := make(chan error, 1)
	go func() { churned <- g.churn(churning) }()
	err := errors.Join(g.measureChange(ctx, c, "route", g.turnRoute), g.measureChange(ctx, c, "endpoint", g.turnEndpoint))
	stop()
	return errors.Join(err, <-churned)
}

// churn changes random routes and endpoints of others until ctx is done.
func (g *gateways) churn(ctx context.Context) error {
	list := g.api.world.services
	for i := 0; ; i++ {
		pause(ctx, churnPause)
		if ctx.Err() != nil {
			return nil
		}
		s := list[rand.IntN(len(list))]
		var err error
		if i%2 == 0 {
			err = g.writeRoute(ctx, s.name, s.name+".example.com", s.name, fmt.Sprint("/", i))
		} else if !g.isHot(s) {
			err = g.api.setEndpoints(ctx, s, g.api.world.addresses(1))
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("change another route: %w", err)
		}
	}
}

func (g *gateways) isHot(s *service) bool {
	for _, h := range g.hot {
		if h == s {
			return true
		}
	}
	return false
}

// turnRoute leads the host "turn" to the other Service.
func (g *gateways) turnRoute(ctx context.Context, i int) (host, want string, err error) {
	to := g.probes[i%2]
	return "turn.example.com", to.addrs[0].String(), g.writeRoute(ctx, "turn", "turn.example.com", to.name, "/")
}

// turnEndpoint gives a Service another endpoint.
func (g *gateways) turnEndpoint(ctx context.Context, _ int) (host, want string, err error) {
	s := g.probes[2]
	err = g.api.setEndpoints(ctx, s, g.api.world.addresses(1))
	return s.name + ".example.com", s.addrs[0].String(), err
}

func (g *gateways) measureChange(ctx context.Context, c *contender, row string, change func(context.Context, int) (host, want string, err error)) error {
	connection, err := g.dial(ctx, c.plain)
	if err != nil {
		return err
	}
	defer connection.Close()
	r := bufio.NewReader(connection)
	var list []latency
	for i := range g.wanted.Samples {
		sent := time.Now()
		host, want, err := change(ctx, i)
		if err != nil {
			return err
		}
		written := time.Now()
		at, err := g.answeredBy(ctx, connection, r, host, want)
		if err != nil {
			return err
		}
		list = append(list, latency{sent: at.Sub(sent), written: at.Sub(written)})
		pause(ctx, time.Duration(20+rand.IntN(40))*time.Millisecond)
	}
	text := percentiles(list, func(l latency) time.Duration { return l.written }) + " (from sending the write " + percentiles(list, func(l latency) time.Duration { return l.sent }) + ")"
	g.results.add(row, g.size, c.name, text)
	g.options.Log.Info("measured", "row", row, "contender", c.name, "routes", g.size.services, "result", text)
	return nil
}

// answeredBy asks until an endpoint answers, and returns when it was asked.
func (g *gateways) answeredBy(ctx context.Context, c net.Conn, r *bufio.Reader, host, want string) (time.Time, error) {
	for deadline := time.Now().Add(gatewayTimeout); ; {
		at := time.Now()
		status, got, err := askRaw(c, r, host, "/")
		switch {
		case err != nil:
			return at, fmt.Errorf("ask for %s: %w", host, err)
		case status == 200 && got == want:
			return at, nil
		case at.After(deadline):
			return at, fmt.Errorf("%s is answered %d by %s after %s, want %s", host, status, got, gatewayTimeout, want)
		case ctx.Err() != nil:
			return at, ctx.Err()
		}
		time.Sleep(pollPause)
	}
}

// writeRoute leads a host to a Service, besides another path of it.
func (g *gateways) writeRoute(ctx context.Context, name, host, to, path string) error {
	routes := g.routesOf()
	port, prefix := gatewayv1.PortNumber(vipPort), gatewayv1.PathMatchPathPrefix
	backend := gatewayv1.HTTPBackendRef{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(to), Port: &port}}}
	spec := gatewayv1.HTTPRouteSpec{
		CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: gatewayObject}}},
		Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname(host)},
		Rules:           []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{backend}}},
	}
	if path != "/" {
		spec.Rules = append(spec.Rules, gatewayv1.HTTPRouteRule{
			Matches:     []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: &prefix, Value: &path}}},
			BackendRefs: []gatewayv1.HTTPBackendRef{backend},
		})
	}
	for {
		current, err := routes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			_, err = routes.Create(ctx, &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create HTTPRoute %s: %w", name, err)
			}
			return nil
		}
		current.Spec = spec
		if _, err = routes.Update(ctx, current, metav1.UpdateOptions{}); err == nil || ctx.Err() != nil {
			return err
		}
		if !isConflict(err) { // the controller writes its status
			return fmt.Errorf("update HTTPRoute %s: %w", name, err)
		}
	}
}
