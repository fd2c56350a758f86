package kubeproxy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// effect says what a field does here: nothing more to say if why is "",
// otherwise it has no effect, and why not.
type effect struct {
	why string
	// unless is the value that, being kube-proxy's default, needs no warning.
	unless any
}

// fields are all fields of a KubeProxyConfiguration, by their paths. A field
// that is a map or a list is one field.
var fields = map[string]effect{
	"kind":         {},
	"apiVersion":   {},
	"featureGates": {why: "kube-proxy's feature gates switch parts of kube-proxy's own code"},

	"clientConnection.kubeconfig":         {},
	"clientConnection.acceptContentTypes": {},
	"clientConnection.contentType":        {},
	"clientConnection.qps":                {},
	"clientConnection.burst":              {},

	"logging.format":                      {},
	"logging.flushFrequency":              {why: "every line is written at once", unless: int64(defaultLogFlush)},
	"logging.verbosity":                   {},
	"logging.vmodule":                     {why: "the log's verbosity is one for all"},
	"logging.options.text.splitStream":    {why: logsToStderr},
	"logging.options.text.infoBufferSize": {why: logsToStderr},
	"logging.options.json.splitStream":    {why: logsToStderr},
	"logging.options.json.infoBufferSize": {why: logsToStderr},

	"hostnameOverride":            {},
	"bindAddress":                 {},
	"healthzBindAddress":          {},
	"metricsBindAddress":          {},
	"bindAddressHardFail":         {},
	"enableProfiling":             {},
	"showHiddenMetricsForVersion": {why: "no metrics are hidden"},
	"mode":                        {},

	"iptables.masqueradeBit":      {},
	"iptables.masqueradeAll":      {},
	"iptables.localhostNodePorts": {},
	"iptables.syncPeriod":         {},
	"iptables.minSyncPeriod":      {},

	"ipvs.syncPeriod":    {},
	"ipvs.minSyncPeriod": {},
	"ipvs.scheduler":     {},
	"ipvs.excludeCIDRs":  {},
	"ipvs.strictARP":     {},
	"ipvs.tcpTimeout":    {},
	"ipvs.tcpFinTimeout": {},
	"ipvs.udpTimeout":    {},

	"nftables.masqueradeBit": {why: "nftables mode needs no packet mark", unless: int64(defaultMasqueradeBit)},
	"nftables.masqueradeAll": {},
	"nftables.syncPeriod":    {},
	"nftables.minSyncPeriod": {},

	"winkernel.networkName":           {why: onlyWindows},
	"winkernel.sourceVip":             {why: onlyWindows},
	"winkernel.enableDSR":             {why: onlyWindows},
	"winkernel.rootHnsEndpointName":   {why: onlyWindows},
	"winkernel.forwardHealthCheckVip": {why: onlyWindows},

	"detectLocalMode":                 {},
	"detectLocal.bridgeInterface":     {},
	"detectLocal.interfaceNamePrefix": {},
	"clusterCIDR":                     {},
	"nodePortAddresses":               {},
	"oomScoreAdj":                     {},

	"conntrack.maxPerCore":            {},
	"conntrack.min":                   {},
	"conntrack.tcpEstablishedTimeout": {},
	"conntrack.tcpCloseWaitTimeout":   {},
	"conntrack.tcpBeLiberal":          {},
	"conntrack.udpTimeout":            {},
	"conntrack.udpStreamTimeout":      {},

	"configSyncPeriod":    {why: "what the API says is watched, not asked for now and then", unless: int64(defaultConfigSync)},
	"portRange":           {why: "kube-proxy has no use for it any more either"},
	"windowsRunAsService": {why: onlyWindows},
}

// Why fields of several names have no effect.
const (
	logsToStderr = "the log goes to standard error, unbuffered"
	onlyWindows  = "it is for Windows nodes"
)

// Warnings names the fields that c sets and that have no effect, with reasons.
func Warnings(c *Configuration) []string {
	var list []string
	leaves("", reflect.ValueOf(c).Elem(), func(path string, v reflect.Value) {
		e, known := fields[path]
		switch {
		case isZero(v) || (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0:
		case !known:
			list = append(list, path+": has no effect: not known here")
		case path == "featureGates":
			list = append(list, gateWarnings(c.FeatureGates)...)
		case e.why != "" && !(e.unless != nil && fmt.Sprint(plain(v)) == fmt.Sprint(e.unless)):
			list = append(list, fmt.Sprintf("%s: has no effect: %s", path, e.why))
		}
	})
	slices.Sort(list)
	return list
}

func isZero(v reflect.Value) bool {
	if v.CanAddr() {
		if z, ok := v.Addr().Interface().(interface{ IsZero() bool }); ok { // a Quantity
			return z.IsZero()
		}
	}
	return v.IsZero()
}

// plain is the number or truth in a field, through pointers and Durations.
func plain(v reflect.Value) any {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	for v.Kind() == reflect.Struct {
		v = v.Field(0)
	}
	switch {
	case v.CanInt():
		return v.Int()
	default:
		return v.Interface()
	}
}

// leaves calls visit with every field below a struct that is none itself.
func leaves(path string, v reflect.Value, visit func(path string, v reflect.Value)) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		below := strings.TrimPrefix(path+"."+name, ".")
		switch {
		case name == "-":
		case name == "" && value.Kind() == reflect.Struct: // embedded
			leaves(path, value, visit)
		case value.Kind() == reflect.Struct && isGroup(value.Type()):
			leaves(below, value, visit)
		default:
			visit(below, value)
		}
	}
}

// isGroup reports whether a struct holds fields of the file, as opposed to
// being written as one value (durations and quantities).
func isGroup(t reflect.Type) bool {
	_, text := reflect.PointerTo(t).MethodByName("MarshalJSON")
	return !text
}
