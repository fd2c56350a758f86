package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/fairway-net/fairway/apiserver/allocator"
	"github.com/fairway-net/fairway/apiserver/rights"
	"github.com/fairway-net/fairway/apiserver/storage"
	"github.com/fairway-net/fairway/apiserver/validation"
	"github.com/fairway-net/fairway/kube/balance"
)

// bootstrap makes the objects that every cluster has. The rights come first: without
// them others aren't answered. Each step may be taken twice.
func (s *Server) bootstrap(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.LoopbackConfig())
	if err != nil {
		return fmt.Errorf("create loopback client: %w", err)
	}
	if err := storage.DespiteElections(ctx, "write the roles that every cluster has", func(context.Context) error { return rights.Reconcile(client) }); err != nil {
		return err
	}
	if err := storage.DespiteElections(ctx, "make the namespaces that every cluster has", func(ctx context.Context) error { return bootstrapNamespaces(ctx, client) }); err != nil {
		return err
	}
	definitions := s.installDefinitions(ctx)
	return errors.Join(s.enterService(ctx, client), <-definitions)
}

func bootstrapNamespaces(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	return nil
}

// enterService makes the Services by which the API and DNS are found, and enters this
// server among those that serve the API.
func (s *Server) enterService(ctx context.Context, client kubernetes.Interface) error {
	if err := storage.DespiteElections(ctx, "write the ServiceCIDR of --service-cidr", func(ctx context.Context) error { return s.bootstrapServiceCIDR(ctx, client) }); err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), s.rangesKnown) {
		return fmt.Errorf("read ServiceCIDRs: %w", context.Cause(ctx))
	}
	if err := storage.DespiteElections(ctx, "look where agents serve DNS", func(ctx context.Context) error { return s.checkClusterDNS(ctx, client) }); err != nil {
		return err
	}
	s.checkFamily()
	services := func(ctx context.Context) error { return s.bootstrapServices(ctx, client) }
	if err := services(ctx); err != nil {
		// Another Service may have the address: that one must go first.
		slog.Warn("the API's own Services could not be written; trying again", "error", err)
	}
	keys, err := storage.KeyNames(EncryptionKeys(s.config.DataDir))
	if err != nil {
		return err
	}
	p := &presence{
		etcd: s.backend.Client.Client, api: client, closed: make(chan struct{}),
		self:  netip.AddrPortFrom(s.config.AdvertiseAddress, uint16(s.config.Port)),
		alone: len(s.config.EtcdServers) == 0 && s.config.membership == nil, services: services,
		describe: func() listed { return s.presentAs(keys) },
		// Commands on this machine find the others when this one is down.
		changed: func(servers []string) error {
			return balance.Remember(filepath.Join(s.config.DataDir, balance.FileName), servers, time.Now())
		},
	}
	if err := storage.DespiteElections(ctx, "list this server among those that serve the API", p.enter); err != nil {
		if !s.backend.Full() {
			return err
		}
		// It is tried again until there is room.
		slog.Warn("the endpoints of Service kubernetes could not be written", "error", err)
	}
	s.presence.Store(p)
	go p.run(ctx)
	return nil
}

// installDefinitions makes the definitions of custom resources that every cluster has,
// which takes the longest of all in a cluster's first start. The channel gives the result.
func (s *Server) installDefinitions(ctx context.Context) <-chan error {
	result := make(chan error, 1)
	if s.custom == nil || s.config.noDefinitions {
		result <- nil
		return result
	}
	go func() {
		result <- storage.DespiteElections(ctx, "install definitions of custom resources", func(ctx context.Context) error {
			return s.custom.Install(ctx, s.LoopbackConfig())
		})
	}()
	return result
}

// apiPort is the name of the API Service's port.
const apiPort = "https"

// dnsService is the name that every cluster's DNS Service has.
const dnsService = "kube-dns"

func apiLabels() map[string]string {
	return map[string]string{"component": "apiserver", "provider": "kubernetes"}
}

// reserve keeps the addresses of these Services for them.
func (s *Server) reserve(a *allocator.Allocator) {
	a.Reserve(a.First(), types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: validation.APIService})
	if s.config.ClusterDNS.IsValid() {
		a.Reserve(s.config.ClusterDNS, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: dnsService})
	}
}

// bootstrapServices makes the Services that every cluster has, where they are
// missing: at the start, and when somebody deleted them.
func (s *Server) bootstrapServices(ctx context.Context, client kubernetes.Interface) error {
	err := s.bootstrapService(ctx, client)
	if s.config.ClusterDNS.IsValid() {
		err = errors.Join(err, s.bootstrapDNS(ctx, client))
	}
	return err
}

func (s *Server) bootstrapService(ctx context.Context, client kubernetes.Interface) error {
	services := client.CoreV1().Services(metav1.NamespaceDefault)
	_, err := services.Get(ctx, validation.APIService, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	single := corev1.IPFamilyPolicySingleStack
	_, err = services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: validation.APIService, Labels: apiLabels()},
		Spec: corev1.ServiceSpec{
			Type:           corev1.ServiceTypeClusterIP,
			ClusterIP:      s.allocator.First().String(),
			IPFamilyPolicy: &single,
			Ports: []corev1.ServicePort{{
				Name: apiPort, Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt(s.config.Port),
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Service %s: %w", validation.APIService, err)
	}
	return nil
}

// checkClusterDNS refuses an address that the Service of DNS can never have, and has
// one that exists be where agents serve DNS.
func (s *Server) checkClusterDNS(ctx context.Context, client kubernetes.Interface) error {
	address := s.config.ClusterDNS
	if !address.IsValid() {
		return nil
	}
	service, err := client.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, dnsService, metav1.GetOptions{})
	switch {
	case err == nil:
		return s.followDNS(ctx, client, service)
	case !apierrors.IsNotFound(err):
		return err
	case address == s.allocator.First():
		return fmt.Errorf("cluster DNS address %s: it is that of Service %s", address, validation.APIService)
	case !slices.ContainsFunc(s.allocator.Prefixes(), func(p netip.Prefix) bool { return p.Contains(address) }):
		return fmt.Errorf("cluster DNS address %s: it is in none of the ranges of cluster IPs, %v", address, s.allocator.Prefixes())
	}
	return nil
}

// followDNS deletes a Service of DNS that has an address of ranges which are no more: it is
// made anew where agents serve DNS now. One that has another address of today's ranges
// is somebody's choice.
func (s *Server) followDNS(ctx context.Context, client kubernetes.Interface, service *corev1.Service) error {
	has, err := netip.ParseAddr(service.Spec.ClusterIP)
	if err != nil || has == s.config.ClusterDNS {
		return nil // without an address, somebody's choice, too
	}
	within := func(a netip.Addr) bool {
		return slices.ContainsFunc(s.allocator.Prefixes(), func(p netip.Prefix) bool { return p.Contains(a) })
	}
	if within(has) || !within(s.config.ClusterDNS) {
		slog.Warn("agents serve DNS at another address than Service kube-system/kube-dns has; give --cluster-dns that of the Service, or delete the Service", "agents", s.config.ClusterDNS, "service", has)
		return nil
	}
	slog.Warn("cluster DNS moves with --service-cidr: clients that have its old address must be told", "before", has, "now", s.config.ClusterDNS)
	err = client.CoreV1().Services(service.Namespace).Delete(ctx, service.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(service.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("move Service %s to %s: %w", dnsService, s.config.ClusterDNS, err)
	}
	return nil
}

// checkFamily says so where the Service of the API can have no endpoint.
func (s *Server) checkFamily() {
	first, at := s.allocator.First(), s.config.AdvertiseAddress
	if !at.IsLoopback() && first.Is4() != at.Is4() {
		slog.Warn("nobody reaches the API by Service kubernetes: it is of another IP family than the server's address; give an --advertise-address of its family, or a --service-cidr that begins with one of the server's",
			"service", first, "server", at)
	}
}

// bootstrapDNS makes the Service by which names are found. Its endpoints are
// the agents that serve DNS, who say so themselves.
func (s *Server) bootstrapDNS(ctx context.Context, client kubernetes.Interface) error {
	services := client.CoreV1().Services(metav1.NamespaceSystem)
	_, err := services.Get(ctx, dnsService, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	single := corev1.IPFamilyPolicySingleStack
	_, err = services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: dnsService, Labels: map[string]string{"k8s-app": dnsService, "kubernetes.io/name": "CoreDNS"}},
		Spec: corev1.ServiceSpec{
			Type:           corev1.ServiceTypeClusterIP,
			ClusterIP:      s.config.ClusterDNS.String(),
			IPFamilyPolicy: &single,
			Ports: []corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(53)},
				{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53, TargetPort: intstr.FromInt32(53)},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Service %s: %w", dnsService, err)
	}
	return nil
}
