// Package controlplane runs Kubernetes' own control plane for a lab: etcd,
// kube-apiserver and kube-controller-manager, from binaries that are there
// (see hack/kubernetes/build). They live in the network namespace of the lab's
// underlay, with RBAC, certificates and an audit log, as in a cluster made by
// kubeadm. The node agents are given what kube-proxy is given: a
// KubeProxyConfiguration and the permissions of system:node-proxier.
package controlplane

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairway-net/fairway/apiserver/pki"
)

// Port is where kube-apiserver listens.
const Port = 6443

// ProxyUser is who nodes' proxies are to the API; the ClusterRoleBinding
// system:node-proxier is bootstrapped for this user.
// Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go.
const ProxyUser = "system:kube-proxy"

const controllerManagerUser = "system:kube-controller-manager"

// Options are what the control plane is given.
type Options struct {
	// Binaries is the directory of etcd, kube-apiserver and
	// kube-controller-manager.
	Binaries string
	// Dir is for certificates, kubeconfigs, data and the audit log.
	Dir string
	// Addresses are those under which nodes reach the API server; the first one
	// is what it tells them.
	Addresses    []netip.Addr
	ServiceCIDRs []netip.Prefix
}

// Command is one of the control plane's processes.
type Command struct {
	Name string
	Path string
	Args []string
}

// programs are the control plane's.
var programs = []string{"etcd", "kube-apiserver", "kube-controller-manager"}

// Commands are the control plane's processes, in the order of their start.
func (o Options) Commands() []Command {
	return []Command{
		{"etcd", o.binary("etcd"), o.etcd()},
		{"kube-apiserver", o.binary("kube-apiserver"), o.apiServer()},
		{"kube-controller-manager", o.binary("kube-controller-manager"), o.controllerManager()},
	}
}

// Check says what is missing.
func (o Options) Check() error {
	for _, name := range programs {
		info, err := os.Stat(o.binary(name))
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return fmt.Errorf("find %s: %s is not a program", name, o.binary(name))
		}
	}
	return nil
}

// AdminKubeconfig is for the lab itself, and who uses it.
func (o Options) AdminKubeconfig() string { return o.file("admin.kubeconfig") }

// ProxyKubeconfig is for the nodes' proxies.
func (o Options) ProxyKubeconfig() string { return o.file("proxy.kubeconfig") }

// AuditLog is where kube-apiserver writes down who asked for what.
func (o Options) AuditLog() string { return o.file("audit.log") }

// URL is the API server's address for nodes.
func (o Options) URL() string {
	return "https://" + netip.AddrPortFrom(o.Addresses[0], Port).String()
}

func (o Options) binary(name string) string { return filepath.Join(o.Binaries, name) }
func (o Options) file(name string) string   { return filepath.Join(o.Dir, name) }

// Prepare writes the files that the commands read, and the kubeconfigs.
func (o Options) Prepare() error {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("create directory of the control plane: %w", err)
	}
	authority, err := pki.Open(o.Dir)
	if err != nil {
		return err
	}
	if err := o.issueServing(authority); err != nil {
		return err
	}
	for _, u := range []struct {
		file, user string
		groups     []string
	}{
		{o.AdminKubeconfig(), "admin", []string{"system:masters"}},
		{o.ProxyKubeconfig(), ProxyUser, nil},
		{o.file("controller-manager.kubeconfig"), controllerManagerUser, nil},
	} {
		pair, err := authority.Client(u.user, u.groups...)
		if err != nil {
			return err
		}
		config, err := authority.Kubeconfig(o.URL(), u.user, pair)
		if err != nil {
			return err
		}
		if err := pki.WriteFile(u.file, config, 0o600); err != nil {
			return err
		}
	}
	return pki.WriteFile(o.file("audit-policy.yaml"), []byte(auditPolicy), 0o644)
}

// issueServing writes the API server's certificate and the key by which
// ServiceAccounts' tokens are signed.
func (o Options) issueServing(authority *pki.Authority) error {
	ips := []net.IP{net.IPv4(127, 0, 0, 1), o.ServiceCIDRs[0].Masked().Addr().Next().AsSlice()}
	for _, a := range o.Addresses {
		ips = append(ips, a.AsSlice())
	}
	serving, err := authority.Server("kube-apiserver", ips, []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"})
	if err != nil {
		return err
	}
	accounts, err := authority.Client("service-accounts")
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"apiserver.crt": serving.Cert, "apiserver.key": serving.Key,
		"accounts.crt": accounts.Cert, "accounts.key": accounts.Key,
	} {
		if err := pki.WriteFile(o.file(name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// auditPolicy has each request written down once, when it has been answered;
// watches, which last, when they begin to be.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func texts[T fmt.Stringer](list []T) string {
	all := make([]string, len(list))
	for i, l := range list {
		all[i] = l.String()
	}
	return strings.Join(all, ",")
}
