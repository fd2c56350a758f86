# The two commands of the README are `make demo` and `make test`.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X github.com/fairway-net/fairway/cmd.Version=$(VERSION)
LINT     := $(GO) tool -modfile=tools/go.mod golangci-lint
# Packages without a network of their own: the race detector sees these. ./dns isn't one: CoreDNS' cache and
# reload have races of their own, which it reports. Nor is ./apiserver, whose tests take an etcd each. `make race` has both.
UNIT     := ./internal/manifest ./internal/nlmsg ./internal/queue ./internal/weights ./model/... ./compile/... ./diagnose/... ./kube/... ./agent/... ./config/... ./internal/tuning ./controller/... ./internal/kernel/... ./apiserver/validation ./apiserver/defaults ./apiserver/pki
UNIT     += ./dataplane/ebpf/program ./internal/seldom ./internal/iprange ./internal/oldapi ./announce/...
UNIT     += ./endpoint/... ./hook ./dns/outside ./dns/machine
UNIT     += ./ingress/...
UNIT     += ./apiserver/allocator ./apiserver/registry ./apiserver/rights ./apiserver/identity ./apiserver/tables
UNIT     += ./apiserver/customresources ./apiserver/storage ./internal/ranges ./internal/drops

# Kernels without SCTP sockets skip this; the virtual machine's kernel has them.
MAY_SKIP := "github.com/fairway-net/fairway/lab/echo TestSCTP"

# Kubernetes' own programs take long to build, so `make cluster` has what needs them.
KUBERNETES := 1.36.3
CLUSTER    := TestKubernetes TestControlPlane TestTakeOver TestKubeProxyAlone TestOverlap TestKubeProxy
MAY_SKIP   += $(foreach t,$(filter-out TestKubeProxy,$(CLUSTER)),"github.com/fairway-net/fairway/lab $(t)")
MAY_SKIP   += "github.com/fairway-net/fairway/test/conformance/planes TestKubeProxy"

# The image takes as long, and programs that `make deps` doesn't install.
MAY_SKIP   += "github.com/fairway-net/fairway/deploy TestImage"

# The commands of docs/operating.md, and servers that fail: `make servers`.
MAY_SKIP   += "github.com/fairway-net/fairway/cmd TestOperating" "github.com/fairway-net/fairway/cmd TestServersFail"

# Where conntrack has room for very many entries, it isn't filled.
MAY_SKIP   += "github.com/fairway-net/fairway/dataplane/ebpf/packet TestHandoverToFullTable"

# So do the settings of routers, each of which takes new sessions: `make routers`.
MAY_SKIP   += "github.com/fairway-net/fairway/lab TestRouterMatrix" "github.com/fairway-net/fairway/lab TestBirdMatrix"

# Connections through a node that is drained, in each mode: `make drain`.
MAY_SKIP   += "github.com/fairway-net/fairway/lab TestDrainKeepsConnections" "github.com/fairway-net/fairway/lab TestDrainUnderRouters" "github.com/fairway-net/fairway/lab TestWhoMayNotAnnounce" "github.com/fairway-net/fairway/lab TestStableFlows" "github.com/fairway-net/fairway/lab TestKeeperLost" "github.com/fairway-net/fairway/lab TestShutdown" "github.com/fairway-net/fairway/lab TestDrainManyAddresses" "github.com/fairway-net/fairway/lab TestLastEndpoint"

# Bonds, VLANs and VRFs: `make stacked`.
MAY_SKIP   += "github.com/fairway-net/fairway/announce/l2 TestStacked" "github.com/fairway-net/fairway/announce/bgp TestDevices/VRF" "github.com/fairway-net/fairway/announce/bgp TestRouterInVRF"

# The causes that doctor names take half a minute for each mode: `make causes`.
MAY_SKIP   += "github.com/fairway-net/fairway/lab TestCausesInAllModes"

# Agents elsewhere, asked by nodes/proxy and pods/exec: `make many-nodes`.
MAY_SKIP   += "github.com/fairway-net/fairway/lab TestManyNodes"

# A thousand traced connections, and traces in iptables-legacy and IPVS: `make traces`.
MAY_SKIP   += "github.com/fairway-net/fairway/lab TestTraces" "github.com/fairway-net/fairway/lab TestTraceIPVS" "github.com/fairway-net/fairway/lab TestTrace/iptables-legacy"

# A Prometheus that scrapes agents, and 10,000 Services: `make dashboard`, `make many-services`.
MAY_SKIP   += "github.com/fairway-net/fairway/lab TestDashboard" "github.com/fairway-net/fairway/lab TestExplainManyServices"

# Units under a systemd that is a machine's first process: `make systemd`.
MAY_SKIP   += "github.com/fairway-net/fairway/deploy TestSystemd"

# The page takes a browser and npm: `make page`.
MAY_SKIP   += "github.com/fairway-net/fairway/lab TestPageOfLab"
MAY_SKIP   += "github.com/fairway-net/fairway/diagnose/web TestPage"

.PHONY: fairway-bench race systemd rest many-nodes drain simulate stacked bench-announce web page pictures first-minutes release arm64 reproducible audit api-conformance deb deb-test causes faults helm gateway-conformance h2spec nothing-lost build demo bench soak bench-kube-proxy bench-ipvs test unit all cluster routers image lint generate generated deps clean traces dashboard many-services

# Without cgo: kustomize, in kubectl, would have the linker keep every symbol for plugins.
# A copy, since the linker leaves a file in the page cache of which Linux 6.18 maps 60 MB more into each process
# (docs/performance-notes.md, "Peak memory").
build: ## the binary, in ./fairway
	CGO_ENABLED=0 $(GO) build -ldflags "$(LDFLAGS)" -o bin/fairway .
	cp bin/fairway fairway.new && mv -f fairway.new fairway

fairway-bench: build ## the program that measures the one beside it, in ./bin
	CGO_ENABLED=0 $(GO) build -ldflags "-s -w -X main.version=$(VERSION)" -o bin/fairway-bench ./test/fairway-bench

deps: ## what the build, the lab and the tests need from Debian
	./hack/install-deps.sh

demo: deps build ## install what is missing, build, and show it
	./fairway lab demo

test: deps lint generated unit rest ## everything

bin/testsummary: $(wildcard hack/testsummary/*.go)
	@mkdir -p bin && $(GO) build -o $@ ./hack/testsummary

unit: bin/testsummary ## pure and in-process tests, under the race detector
	$(GO) test -race -json $(UNIT) | bin/testsummary $(MAY_SKIP)

# Tests of ./dns that take CoreDNS' cache (plugin/cache/setup.go:28) or reload (caddy.go:245), which write
# what is being read.
RACES := TestFlood TestGuard TestReload TestStaleAnswers TestExternalNameOutside

race: ## under the race detector, what unit leaves out: the tests of the API server, and of DNS without those in which CoreDNS' own code races: 20 minutes
	$(GO) test -race -timeout 10m -skip '^($(subst $() ,|,$(RACES)))$$' ./dns
	$(GO) test -race -timeout 40m ./apiserver

# Packages that unit leaves out, and those with files that the race detector can't have.
REST = { $(GO) list ./... ; $(GO) list $(UNIT); } | sort | uniq -u; $(GO) list -race -f '{{if .IgnoredGoFiles}}{{.ImportPath}}{{end}}' $(UNIT)

rest: build bin/testsummary ## the tests that unit doesn't run, with namespaces, kernels and real packets; few at a time, since they share one machine
	$(GO) test -json -p 2 -timeout 40m $$($(REST)) | bin/testsummary $(MAY_SKIP)

all: build bin/testsummary ## all tests, without the race detector
	$(GO) test -json -p 2 -timeout 40m ./... | bin/testsummary $(MAY_SKIP)

bin/kubernetes/%: ## Kubernetes' own etcd, kube-apiserver, kube-controller-manager and kube-proxy, of a version
	./hack/kubernetes/build $* $@

cluster: build bin/kubernetes/$(KUBERNETES) ## the agent in clusters whose control plane is Kubernetes' own, and against the real kube-proxy
	FAIRWAY_KUBERNETES=$(CURDIR)/bin/kubernetes/$(KUBERNETES) $(GO) test -v -p 1 -timeout 60m -run '^($(subst $() ,|,$(CLUSTER)))$$' ./lab ./test/conformance/planes

routers: build ## what real routers make of what nodes announce: minutes, since sessions begin anew for each setting
	FAIRWAY_ROUTERS=1 $(GO) test -v -timeout 30m -run '^(TestRouters|TestRouterMatrix|TestBirdMatrix)$$' ./lab

drain: build ## connections through nodes that are drained, in each mode, also over routers, nodes that may not announce, and stable flows, nodes that lose power meanwhile, a machine that shuts down, a node with 10,000 addresses, and the last endpoint of a Service: eight minutes
	FAIRWAY_DRAIN=isolated unshare --mount --propagation private $(GO) test -v -count=1 -timeout 15m -run '^(TestDrainKeepsConnections|TestDrainUnderRouters|TestWhoMayNotAnnounce|TestStableFlows|TestKeeperLost|TestShutdown|TestDrainManyAddresses|TestLastEndpoint)$$' ./lab

simulate: ## nodes of a link that decide who owns an address, with all that may happen to them, from one seed after the other until it is stopped
	FAIRWAY_SIMULATE=1000000000 $(GO) test -v -timeout 0 -run '^TestSimulate$$' ./announce/l2

# This kernel may lack them; the virtual machine's has them.
stacked: ## layer 2 on a bond that goes over to its other interface, and on a VLAN of it; BGP in VRFs, with FRR and packets: two minutes, in the virtual machine
	@mkdir -p bin
	for p in l2 bgp; do CGO_ENABLED=0 $(GO) test -c -o bin/$$p.test ./announce/$$p || exit 1; done
	$(GO) run ./test/invm -modules bonding,8021q,veth,bridge bin/l2.test -test.v -test.run '^TestStacked$$'
	$(GO) run ./test/invm -modules vrf,veth -read /usr/lib/frr/zebra,/usr/lib/frr/bfdd,/usr/lib/frr/bgpd,/etc/group,/etc/passwd bin/bgp.test -test.v -test.run '^(TestDevices|TestRouterInVRF)$$'

many-nodes: build ## agents of nodes elsewhere, asked by nodes/proxy and by pods/exec, with few rights, and silent: half a minute
	FAIRWAY_MANY_NODES=1 $(GO) test -v -count=1 -timeout 10m -run '^TestManyNodes$$' ./lab

traces: build ## a thousand traced connections, and traces in iptables-legacy and IPVS (in the virtual machine): minutes
	FAIRWAY_TRACES=1 $(GO) test -v -count=1 -timeout 40m -run '^(TestTrace|TestTraces|TestTraceIPVS)$$' ./lab

dashboard: build ## the queries of deploy/monitoring's dashboard, by Debian's Prometheus that scrapes an agent in a lab: a minute
	FAIRWAY_DASHBOARD=1 $(GO) test -v -count=1 -timeout 10m -run '^TestDashboard$$' ./lab

many-services: build ## what explain reads and takes with 10,000 Services of five endpoints: a minute
	FAIRWAY_MANY_SERVICES=1 $(GO) test -v -count=1 -timeout 10m -run '^TestExplainManyServices$$' ./lab

causes: build ## the causes that doctor names, provoked in labs of every mode
	FAIRWAY_CAUSES=1 $(GO) test -v -timeout 40m -run '^(TestCauses|TestCausesInAllModes)$$' ./lab

# In a network namespace, where servers can be cut off from each other. The program
# that an upgrade begins with has a clock that can be set: see test/clockjump.
servers: build ## three servers under a load of writes and of connections: killed, silent, cut off, full, with a wrong clock, upgraded. And the commands of docs/operating.md
	$(GO) test -c -o bin/servers.test ./apiserver
	cd apiserver && FAIRWAY_SERVERS=isolated unshare --net sh -c 'ip link set lo up && ../bin/servers.test -test.v -test.timeout 30m -test.run "^TestFaults$$"'
	./test/clockjump/overlay bin/clockjump >bin/clockjump.json
	CGO_ENABLED=0 $(GO) build -overlay bin/clockjump.json -ldflags "-X github.com/fairway-net/fairway/cmd.Version=v0.0.1-before" -o bin/fairway-before .
	FAIRWAY_BEFORE=$(CURDIR)/bin/fairway-before FAIRWAY_AFTER=$(CURDIR)/fairway unshare --mount --propagation private $(GO) test -v -count=1 -timeout 30m -run '^TestServersFail$$' ./cmd
	FAIRWAY_SERVERS=1 $(GO) test -v -timeout 30m -run '^TestOperating$$' ./cmd

faults: ## each call of the kernel that ipvs mode makes fails in turn, of which other runs try some: minutes
	$(GO) test -v -timeout 30m -run '^TestEveryCallFails$$' ./dataplane/ipvs -every-call

image: ## the image, built without a container engine or a registry, and its containers run as the DaemonSet says
	./hack/install-deps.sh image
	./deploy/try-image bin/image

gateway-conformance: build ## Gateway API's own conformance suite, in a lab: a minute and a half, once it is built; ENGINE=haproxy for that engine
	ENGINE=$(or $(ENGINE),native) FAIRWAY=$(CURDIR)/fairway ./test/conformance/gateway/run

api-conformance: build ## Kubernetes' own conformance tests that need no running pods, against a server, into docs/conformance.md: ten minutes
	FAIRWAY=$(CURDIR)/fairway ./test/conformance/kubernetes/run

helm: build ## a usual chart by Helm's own library, and cert-manager's definitions, against a server: a quarter of a minute, once it is built
	cd test/helm && FAIRWAY=$(CURDIR)/fairway $(GO) test -count=1 .

h2spec: ## h2spec against the native engine, in the clear and over TLS: a minute
	@mkdir -p bin && cd test/conformance/h2spec && $(GO) build -o ../../../bin/h2spec github.com/summerwind/h2spec/cmd/h2spec
	H2SPEC=$(CURDIR)/bin/h2spec $(GO) test -tags h2spec -count=1 -v -run '^TestH2spec$$' ./ingress/engine/native

nothing-lost: ## 50 rolling updates, 2,000 changes of routes and certificates and ten restarts of the gateway at 2,000 requests/s: minutes; ENGINE=haproxy for that engine
	FAIRWAY_NOTHING_LOST=long FAIRWAY_TEST_ENGINE=$(ENGINE) $(GO) test -v -count=1 -timeout 30m -run '^TestNothingLost$$' ./ingress/gateway

bench: fairway-bench ## measure everything but the following, in namespaces of this machine, and write it down: a quarter of an hour
	./bin/fairway-bench --out docs/performance.md

soak: fairway-bench ## a million endpoint changes, and what becomes of the kernel, memory and open files
	./bin/fairway-bench --only soak --out docs/performance.md

# Not iptables-nft, with which kube-proxy takes over five minutes to start at 10,000 Services.
bench-kube-proxy: fairway-bench bin/kubernetes/$(KUBERNETES) ## the real kube-proxy beside our modes, in the same way
	for services in 1000 10000; do ./bin/fairway-bench --kube-proxy bin/kubernetes/$(KUBERNETES)/kube-proxy --mode nftables,iptables-legacy \
		--only start,latency,cpu,memory,connections --services $$services --endpoints 5 --out docs/performance.md || exit 1; done

# The kernel at hand may lack IP_VS. The virtual machine's clock counts instructions (see test/vm), so that other work here
# matters less. It wants an idle machine all the same, or takes hours.
bench-ipvs: fairway-bench ## ipvs mode beside nftables, in the virtual machine
	for services in 100 1000; do FAIRWAY_VM_ACCEL=icount $(GO) run ./test/invm -api bin/fairway -modules ip_vs,ip_vs_rr,dummy -files docs/performance.md -read bin/fairway \
		./bin/fairway-bench --fairway bin/fairway --mode nftables,ipvs --only start,latency,cpu,service,memory,connections,datapath --services $$services --endpoints 3 \
		--section 'the virtual machine' --out docs/performance.md || exit 1; done

bench-announce: fairway-bench ## what clients notice when a node that announces addresses is drained, killed, cut off or without power; beside keepalived: half an hour
	./bin/fairway-bench announce --mode nftables --out docs/performance.md
	./bin/fairway-bench announce --mode ebpf --way l2,bgp,bfd --out docs/performance.md

pictures: build ## docs/pictures: the README's lab as it is recorded, and the plots of docs/performance.md
	./hack/install-deps.sh pictures
	./hack/pictures/record
	./hack/pictures/figures

first-minutes: build ## docs/first-minutes: what three new users see who follow README.md, with times
	FAIRWAY_RECORD=$(CURDIR)/docs/first-minutes $(GO) test -v -count=1 -run '^(TestREADMELab|TestREADMEOperator|TestFirstFiveMinutes)$$' ./cmd

deb: build ## a Debian package, in bin/deb
	./deploy/debian/build fairway $(shell $(GO) env GOARCH) $(VERSION) bin/deb

deb-test: build ## that package installed, upgraded, removed and purged in a clean Debian system
	./hack/install-deps.sh image
	rm -rf bin/deb-test/old bin/deb-test/new
	./deploy/debian/build fairway $(shell $(GO) env GOARCH) 0.0.1 bin/deb-test/old
	./deploy/debian/build fairway $(shell $(GO) env GOARCH) 0.0.2 bin/deb-test/new
	./deploy/debian/try bin/deb-test/old/*.deb bin/deb-test/new/*.deb bin/deb-test

systemd: build ## the units under a real systemd: two Debian systems that boot, join, are rebooted, leave and are purged: one to three minutes
	./hack/install-deps.sh image
	./test/systemd/debian bin/systemd/debian
	FAIRWAY_SYSTEMD=$(CURDIR)/bin/systemd/debian FAIRWAY=$(CURDIR)/fairway $(GO) test -v -count=1 -timeout 10m -run '^TestSystemd$$' ./deploy

web: ## the page of `fairway web`, from web/ into diagnose/web/dist; it takes node and npm
	cd web && npm ci --ignore-scripts --loglevel=error && npx tsc && node build.mjs

page: ## that page in a real Chromium, by keyboard and by axe, with pictures of every view in bin/page: a minute; it takes node and npm
	./hack/install-deps.sh page
	cd web && npm ci --ignore-scripts --loglevel=error
	rm -rf bin/page
	FAIRWAY_PAGE=$(CURDIR)/bin/page $(GO) test -v -count=1 -timeout 10m -run '^TestPage$$' ./diagnose/web
	FAIRWAY_PAGE=$(CURDIR)/bin/page $(GO) test -v -count=1 -timeout 10m -run '^TestPageOfLab$$' ./lab

release: ## static binaries for amd64 and arm64 with their licences, Debian packages, lists of parts and checksums, in bin/release
	rm -rf bin/release
	./hack/release/build $(VERSION) bin/release

# Of the tests those that need no other machine and no program of the host's.
ARM64_TESTS := ebpf=^(TestLoad|TestProbe|TestLife)$$ packet=^(TestTranslate|TestMasquerade|TestRefuse|TestErrors|TestGarbage|TestRoom|TestCounts)$$ sock=^TestReconnect

arm64: ## in an emulated arm64 machine: the eBPF programs load and answer as their tests say, and labs in ebpf and nftables mode serve. Minutes
	./hack/install-deps.sh arm64
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build -ldflags "$(LDFLAGS)" -o bin/arm64/fairway .
	for p in dataplane/ebpf dataplane/ebpf/packet dataplane/ebpf/sock; do CGO_ENABLED=0 GOARCH=arm64 $(GO) test -c -o bin/arm64/$$(basename $$p).test ./$$p || exit 1; done
	./test/arm64/try bin/arm64/fairway bin/arm64 $(foreach t,$(ARM64_TESTS),'bin/arm64/$(subst =,.test=,$(t))')

reproducible: ## a release built twice of what is committed, the second time elsewhere with empty caches: the same bytes; a quarter of an hour
	./hack/release/again $(VERSION) bin/reproducible

audit: ## known vulnerabilities in what the program calls, by Go's database, which it needs the network for
	$(GO) run -modfile=hack/release/go.mod golang.org/x/vuln/cmd/govulncheck .

lint:
	$(LINT) run --allow-parallel-runners ./...

generate: ## regenerate everything that is generated
	./hack/install-deps.sh generate
	$(GO) generate ./...

generated: generate ## fail if what is checked in is stale
	./hack/check-web
	git diff --exit-code -- '*generated*' '*_bpfel*' apis docs/ingress-annotations.md deploy
	cd hack/manifests && $(GO) test ./...

clean:
	rm -rf fairway bin
