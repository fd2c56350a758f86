package kubeproxy

import (
	"cmp"
	"net"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/dataplane"
)

// The ports of kube-proxy.
const (
	healthzPort = "10256"
	metricsPort = "10249"
)

// The default values of kube-proxy 1.37 (its v1alpha1 defaults). The mode has
// none here: which one is best is the agent's to find out.
const (
	defaultMasqueradeBit = 14
	defaultOOMScoreAdj   = -999
	defaultSyncPeriod    = 30 * time.Second
	defaultMinSyncPeriod = time.Second
	defaultConfigSync    = 15 * time.Minute
	defaultMaxPerCore    = 32 * 1024
	defaultConntrackMin  = 128 * 1024
	defaultEstablished   = 24 * time.Hour
	defaultCloseWait     = time.Hour
	defaultLogFlush      = 5 * time.Second
)

// LocalMode values (kube-proxy's --detect-local-mode).
const (
	clusterCIDR         = "ClusterCIDR"
	nodeCIDR            = "NodeCIDR"
	bridgeInterface     = "BridgeInterface"
	interfaceNamePrefix = "InterfaceNamePrefix"
)

// Default sets what c leaves out to what kube-proxy takes then.
func Default(c *Configuration) {
	c.APIVersion, c.Kind = "kubeproxy.config.k8s.io/v1alpha1", "KubeProxyConfiguration"
	c.BindAddress = cmp.Or(c.BindAddress, "0.0.0.0")
	all, own := "0.0.0.0", "127.0.0.1"
	if a, err := netip.ParseAddr(c.BindAddress); err == nil && a.Is6() {
		all, own = "::", "::1"
	}
	c.HealthzBindAddress = withPort(cmp.Or(c.HealthzBindAddress, all), healthzPort)
	c.MetricsBindAddress = withPort(cmp.Or(c.MetricsBindAddress, own), metricsPort)
	orPointer(&c.OOMScoreAdj, defaultOOMScoreAdj)
	orPointer(&c.IPTables.MasqueradeBit, defaultMasqueradeBit)
	orPointer(&c.IPTables.LocalhostNodePorts, true)
	orPointer(&c.NFTables.MasqueradeBit, defaultMasqueradeBit)
	orDuration(&c.IPTables.SyncPeriod, defaultSyncPeriod)
	orDuration(&c.IPTables.MinSyncPeriod, defaultMinSyncPeriod)
	orDuration(&c.NFTables.SyncPeriod, defaultSyncPeriod)
	orDuration(&c.NFTables.MinSyncPeriod, defaultMinSyncPeriod)
	orDuration(&c.IPVS.SyncPeriod, defaultSyncPeriod)
	orDuration(&c.ConfigSyncPeriod, defaultConfigSync)
	orPointer(&c.Conntrack.MaxPerCore, defaultMaxPerCore)
	orPointer(&c.Conntrack.Min, defaultConntrackMin)
	orPointer(&c.Conntrack.TCPEstablishedTimeout, metav1.Duration{Duration: defaultEstablished})
	orPointer(&c.Conntrack.TCPCloseWaitTimeout, metav1.Duration{Duration: defaultCloseWait})
	c.DetectLocalMode = cmp.Or(c.DetectLocalMode, clusterCIDR)
	if dataplane.SectionOf(string(c.Mode)) == dataplane.SectionNFTables && len(c.NodePortAddresses) == 0 {
		c.NodePortAddresses = []string{"primary"}
	}
	c.Logging.Format = cmp.Or(c.Logging.Format, "text")
	if c.Logging.FlushFrequency.Duration.Duration == 0 {
		c.Logging.FlushFrequency.Duration.Duration = defaultLogFlush
		c.Logging.FlushFrequency.SerializeAsString = true
	}
}

func orPointer[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

func orDuration(d *metav1.Duration, value time.Duration) {
	if d.Duration == 0 {
		d.Duration = value
	}
}

// withPort adds a port to an address that has none, as kube-proxy does.
func withPort(address, port string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	if a, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil {
		return net.JoinHostPort(a.String(), port)
	}
	return address // Validate says what is wrong with it
}
