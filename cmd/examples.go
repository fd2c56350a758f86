package cmd

// examples are of commands that have none beside their text; the command's path
// is the key. A test reads every line of them as the shell would.
var examples = map[string]string{
	"up": `
sudo fairway up
sudo fairway up --load-balancer-range 10.77.0.100-10.77.0.110
sudo fairway up --bind-address 0.0.0.0 --advertise-address 10.77.0.11   # other machines may join
sudo fairway up --mode ipvs --service-cidr 10.43.0.0/16`,
	"ls": `
fairway ls
fairway ls -n shop`,
	"server": `
sudo fairway server --bind-address 0.0.0.0 --advertise-address 10.77.0.11
sudo fairway server --cluster-init --bind-address 0.0.0.0               # the first of several
sudo fairway server --join https://10.77.0.11:6443 --token TOKEN --bind-address 0.0.0.0`,
	"server members":        `sudo fairway server members`,
	"server members list":   `sudo fairway server members list`,
	"server members remove": `sudo fairway server members remove server3`,
	"server snapshot": `
sudo fairway server snapshot save before-upgrade.db
sudo fairway server snapshot status before-upgrade.db
sudo fairway server snapshot restore before-upgrade.db`,
	"server snapshot save":    `sudo fairway server snapshot save before-upgrade.db`,
	"server snapshot status":  `sudo fairway server snapshot status before-upgrade.db`,
	"server snapshot restore": `sudo fairway server snapshot restore before-upgrade.db`,
	"server secrets":          `sudo fairway server secrets rewrite`,
	"server secrets rewrite":  `sudo fairway server secrets rewrite`,
	"agent": `
sudo fairway agent --kubeconfig /etc/kubernetes/kubelet.conf
sudo fairway agent --kubeconfig node.kubeconfig --mode nftables --cluster-cidr 10.244.0.0/16
sudo fairway agent --config /var/lib/kube-proxy/config.conf            # kube-proxy's own file`,
	"dns":           `sudo fairway dns --kubeconfig /etc/fairway/kubeconfig --listen 10.77.0.11:53`,
	"dns uninstall": `sudo fairway dns uninstall`,
	"render": `
fairway render -f examples/ --table                # the model: which packets go where
fairway render -f examples/ --mode nftables`,
	"gateway controller": `fairway gateway controller --kubeconfig /etc/fairway/kubeconfig`,
	"gateway":            `sudo fairway gateway --kubeconfig /etc/fairway/kubeconfig`,
	"addresses":          `fairway addresses --load-balancer-range 10.77.0.100-10.77.0.110`,
	"install": `
sudo ./fairway install up --load-balancer-range 10.77.0.100-10.77.0.110
sudo ./fairway install server --bind-address 0.0.0.0 --advertise-address 10.77.0.11
sudo ./fairway install agent --kubeconfig /etc/fairway/kubeconfig --gateway
sudo ./fairway install up                    # a newer version, with the present options`,
	"install up":     `sudo ./fairway install up --load-balancer-range 10.77.0.100-10.77.0.110`,
	"install server": `sudo ./fairway install server --bind-address 0.0.0.0 --advertise-address 10.77.0.11`,
	"install agent": `
sudo ./fairway install agent --kubeconfig /etc/fairway/kubeconfig
sudo ./fairway install agent --kubeconfig /etc/fairway/kubeconfig --gateway=haproxy`,
	"install gateway": `sudo ./fairway install gateway --kubeconfig gateway.kubeconfig --engine haproxy`,
	"uninstall": `
sudo fairway uninstall
sudo fairway uninstall --purge   # data too`,
	"leave": `sudo fairway leave`,
	"status": `
fairway status
fairway status --watch`,
	"announce":        `fairway announce status`,
	"announce status": `fairway announce status`,
	"announce rotate-key": `
fairway announce rotate-key
fairway announce rotate-key --now     # somebody knows the key who must not`,
	"drain": `
fairway drain node2 --wait     # other nodes announce its addresses now
fairway drain node2 --undo`,
	"kubectl": `
sudo fairway kubectl get services --all-namespaces
sudo fairway kubectl apply -f examples/hello.yaml
ln -s /usr/local/bin/fairway ~/bin/kubectl           # under that name it is kubectl
ln -s /usr/local/bin/fairway ~/bin/kubectl-fairway   # and under this one a plugin: kubectl fairway status`,
	"ingress": `fairway ingress convert -f ingresses.yaml`,
	"token": `
sudo fairway token create --ttl 1h
sudo fairway token list`,
	"token create": `
sudo fairway token create
sudo fairway token create --server --ttl 1h`,
	"token list":   `sudo fairway token list`,
	"token delete": `sudo fairway token delete abcdef`,
	"certs":        `sudo fairway certs show`,
	"certs show":   `sudo fairway certs show`,
	"certs rotate": `sudo fairway certs rotate`,
	"certs revoke": `sudo fairway certs revoke node2`,
	"cleanup": `
sudo fairway cleanup --dry-run
sudo fairway cleanup
sudo fairway cleanup --kube-proxy     # what kube-proxy left, too`,
	"lab": `
sudo fairway lab up
sudo fairway lab kubectl apply -f examples/hello.yaml
sudo fairway lab exec client -- curl -s http://172.30.200.1/
sudo fairway lab down`,
	"lab up": `
sudo fairway lab up
sudo fairway lab up --nodes 5 --mode ebpf --service-cidr 10.96.0.0/16,fd00:10:96::/112
sudo fairway lab up --image 'nginx=/usr/sbin/nginx -g "daemon off;"'`,
	"lab down": `
sudo fairway lab down
sudo fairway lab down --all`,
	"lab status": `sudo fairway lab status --name lab`,
	"lab exec": `
sudo fairway lab exec client -- curl -s http://172.30.200.1/
sudo fairway lab exec node1 -- nft list table inet fairway`,
	"lab kubectl": `sudo fairway lab kubectl get pods -o wide`,
	"lab demo":    `sudo fairway lab demo`,
	"lab echo":    `fairway lab echo --port 8080 --port 53/UDP`,
	"version":     `fairway version`,
	"man":         `fairway man /usr/local/share/man/man1`,
}
