package realcluster

import "testing"

// TestTable: what differs is named by its mode, and what is the same is one line.
func TestTable(t *testing.T) {
	pod, node := &Client{Name: "pod"}, &Client{Name: "node"}
	questions := []Question{
		{Service: "unserved port", Way: TCP, Client: pod, To: "10.96.0.1:99"},
		{Service: "unserved port", Way: TCP, Client: node, To: "10.96.0.1:99"},
		{Service: "cluster IP", Way: TCP, Client: pod, To: "10.96.0.1:80"},
		{Service: "cluster IP", Way: TCP, Client: pod, To: "[fd00::1]:80"},
	}
	answers := func(unserved, nodes string) Answers {
		return Answers{
			"unserved port by tcp IPv4 from pod": unserved, "unserved port by tcp IPv4 from node": nodes,
			"cluster IP by tcp IPv4 from pod": "web", "cluster IP by tcp IPv6 from pod": "web",
		}
	}
	got := Table(questions, []Seen{{"kube-proxy", answers("timeout", "refused")}, {"nftables", answers("refused", "refused")}, {"ebpf", answers("timeout", "refused")}})
	want := `| question | from | kube-proxy | Fairway |
|---|---|---|---|
| cluster IP, tcp | pod | web | as kube-proxy's |
| unserved port, tcp | pod | timeout | nftables: refused |
| unserved port, tcp | node | refused | as kube-proxy's |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
