package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
)

// HasPoolAddress reports whether a Service has load balancer addresses from a pool.
func HasPoolAddress(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Annotations[v1beta1.AnnotationFromPool] != ""
}

// announcedAddresses are the Service's load balancer addresses that come from a pool, and that
// nodes must therefore announce. What a cloud's load balancer has given is its own.
func (e *Evidence) announcedAddresses() []netip.Addr {
	s := e.Service
	if s == nil || !HasPoolAddress(s) {
		return nil
	}
	var list []netip.Addr
	for _, in := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// canAnnounce says whether the Service has addresses to announce, and whether it is known who
// does.
func canAnnounce(e *Evidence) (bool, string) {
	if can, why := hasService(e); !can || len(e.announcedAddresses()) == 0 {
		return false, why
	}
	return len(e.Announced) > 0, orElse(e.NoAnnounced, "no node says what it announces")
}

// Unannounced says that no node announces one of the Service's addresses, and why; "" if one
// does, or if that isn't known.
func Unannounced(ctx context.Context, e *Evidence) string {
	if can, _ := canAnnounce(e); !can {
		return ""
	}
	for _, f := range checkAnnounced(ctx, e) {
		return f.text()
	}
	return ""
}

// checkAnnounced finds FW131: an address that no node announces. It is proved if every node was
// asked, and some agent announces at all. Where MetalLB's speakers announce, it isn't known.
func checkAnnounced(_ context.Context, e *Evidence) []Finding {
	if slices.ContainsFunc(e.Announced, func(one Announced) bool { return one.Rival }) {
		return nil
	}
	off := !slices.ContainsFunc(e.Announced, func(one Announced) bool { return !one.Off })
	asked := map[string]bool{} // whose own word counts; of other nodes, another's does
	for _, one := range e.Announced {
		asked[one.Node] = true
	}
	var list []Finding
	for _, a := range e.announcedAddresses() {
		var why []string
		announced := false
		for _, one := range e.Announced {
			if one.Address.IsValid() && one.Address != a {
				continue
			}
			announced = announced || one.By != "" || one.Owner != "" && !asked[one.Owner]
			if text := one.Node + ": " + one.WhyNot; one.WhyNot != "" && !slices.Contains(why, text) {
				why = append(why, text)
			}
		}
		if announced {
			continue
		}
		f := Finding{Code: NotAnnounced, Grade: Proved, What: fmt.Sprintf("no node announces %s", a), Of: why}
		if e.NoAnnounced != "" {
			f.Grade, f.What = Likely, f.What+" of those that could be asked"
		}
		if off {
			f.Grade, f.What = Likely, f.What+", unless another program does"
		}
		list = append(list, f)
	}
	return list
}
