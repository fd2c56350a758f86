package controlplane

import (
	"fmt"
	"strings"
)

// KubeadmConfiguration is the KubeProxyConfiguration that kubeadm 1.37 puts into
// kube-proxy's ConfigMap: most fields are there, empty.
func KubeadmConfiguration(kubeconfig, clusterCIDR, mode string) string {
	return fmt.Sprintf(kubeadmConfiguration, kubeconfig, clusterCIDR, mode)
}

// switchedOff is what kubeadm leaves empty and a network namespace can't have:
// nf_conntrack_max and its like belong to the machine (kind does the same).
var switchedOff = strings.NewReplacer(
	"maxPerCore: null", "maxPerCore: 0", "min: null", "min: 0",
	"tcpCloseWaitTimeout: null", "tcpCloseWaitTimeout: 0s", "tcpEstablishedTimeout: null", "tcpEstablishedTimeout: 0s",
)

// ProxyConfiguration is the same for a lab's node.
func ProxyConfiguration(kubeconfig, clusterCIDR, mode string) string {
	return switchedOff.Replace(KubeadmConfiguration(kubeconfig, clusterCIDR, mode))
}

const kubeadmConfiguration = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: %q
  qps: 0
clusterCIDR: %q
configSyncPeriod: 0s
conntrack:
  maxPerCore: null
  min: null
  tcpBeLiberal: false
  tcpCloseWaitTimeout: null
  tcpEstablishedTimeout: null
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: ""
  interfaceNamePrefix: ""
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
ipvs:
  excludeCIDRs: null
  minSyncPeriod: 0s
  scheduler: ""
  strictARP: false
  syncPeriod: 0s
  tcpFinTimeout: 0s
  tcpTimeout: 0s
  udpTimeout: 0s
kind: KubeProxyConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
metricsBindAddress: ""
mode: %q
nftables:
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel:
  enableDSR: false
  forwardHealthCheckVip: false
  networkName: ""
  rootHnsEndpointName: ""
  sourceVip: ""
`
