# What `make check NAME=…` runs. Each check installs what it needs itself. Tests that take a
# special environment have a build tag of the check's name.

CHECKS := $(shell sed -nE 's/^(check\/[a-z0-9-]+):.*/\1/p' test/checks.mk)
.PHONY: $(CHECKS)

SUMMARY := bin/testsummary

$(SUMMARY): $(wildcard hack/testsummary/*.go)
	@mkdir -p bin && $(GO) build -o $@ ./hack/testsummary

# The tests of a package with a build tag, which print what they do.
TAGGED = $(GO) test -tags $(1) -v -count=1

# --- what CI runs -----------------------------------------------------------

# test/norace.txt names the packages that don't run under the race detector, and why.
NORACE = $(GO) list $$(sed -nE 's/^(\.[^ ]*) .*/\1/p' test/norace.txt)
RACE   = all=$$($(GO) list ./...) && some=$$($(NORACE)) && printf '%s\n' "$$all" "$$some" | sort | uniq -u

# The linters vet, tests too, so tests are run without it.
TEST = $(GO) test -vet=off -json

check/race: $(SUMMARY) ## the tests of all packages but those of test/norace.txt, under the race detector
	./hack/install-deps.sh test
	packages=$$($(RACE)) && $(TEST) -race $$packages | $(SUMMARY)

# Files of tests that the race detector can't have; where they are, and a pattern of the tests in them.
NORACE_FILES = grep -rl --include='*_test.go' '^//go:build !race$$'
NORACE_DIRS  = $(NORACE_FILES) . | xargs dirname | sort -u
NORACE_TESTS = $(NORACE_FILES) . | xargs grep -hoE '^func (Test|Fuzz)\w+' | cut -d' ' -f2 | paste -sd'|'

check/rest: build $(SUMMARY) ## the packages of test/norace.txt, and of others the tests that the race detector can't have; few at a time, since they share one machine
	./hack/install-deps.sh test
	export FAIRWAY_SIMULATE=600; packages=$$($(NORACE)) && dirs=$$($(NORACE_DIRS)) && tests=$$($(NORACE_TESTS)) && { \
		$(TEST) -p 2 -timeout 40m $$packages; $(TEST) -p 2 -timeout 40m -run "^($$tests)$$" $$dirs; } | $(SUMMARY)

check/generated: generate ## fail if what is checked in is stale
	./hack/check-web
	git diff --exit-code -- '*generated*' '*_bpfel*' apis docs/reference/ingress-annotations.md docs/reference/commands.md deploy

check/modules: ## that all modules can be listed; the tests of modules of their own that need nothing but Go
	$(GO) list -m all >/dev/null
	cd test/linearizability/checker && $(GO) test ./...
	cd hack/manifests && $(GO) test ./...
	cd hack/release && $(GO) test ./parts

# --- slower, or under the race detector --------------------------------------

check/all: build $(SUMMARY) ## all tests, without the race detector
	./hack/install-deps.sh test
	$(GO) test -json -p 2 -timeout 40m ./... | $(SUMMARY)

# Tests of ./dns that take CoreDNS' cache (plugin/cache/setup.go:28) or reload (caddy.go:245), which write
# what is being read.
RACES := TestFlood TestGuard TestReload TestStaleAnswers TestExternalNameOutside

check/race-slow: ## the API server and DNS under the race detector, without those tests in which CoreDNS' own code races: 20 minutes
	$(GO) test -race -timeout 10m -skip '^($(subst $() ,|,$(RACES)))$$' ./dns
	$(GO) test -race -timeout 40m ./apiserver

check/faults: ## each call of the kernel that ipvs mode makes fails in turn, of which other runs try some: minutes
	./hack/install-deps.sh test
	$(GO) test -v -timeout 30m -run '^TestEveryCallFails$$' ./dataplane/ipvs -every-call

# --- clusters and labs --------------------------------------------------------

KUBERNETES := 1.36.3
CLUSTER    := TestKubernetes TestControlPlane TestTakeOver TestKubeProxyAlone TestOverlap TestKubeProxy

bin/kubernetes/%: # Kubernetes' own etcd, kube-apiserver, kube-controller-manager and kube-proxy, of a version
	./hack/kubernetes/build $* $@

check/kubernetes: build bin/kubernetes/$(KUBERNETES) ## the agent in clusters whose control plane is Kubernetes' own, and against the real kube-proxy: the better part of an hour to build it, and minutes
	./hack/install-deps.sh test
	FAIRWAY_KUBERNETES=$(CURDIR)/bin/kubernetes/$(KUBERNETES) $(call TAGGED,kubernetes) -p 1 -timeout 60m \
		-run '^($(subst $() ,|,$(CLUSTER)))$$' ./lab ./test/conformance/planes

# What kubeadm makes a cluster of, beside the above.
bin/real-cluster/%: bin/kubernetes/% always
	./hack/kubernetes/build $* bin/kubernetes/$* kubelet kubeadm kubectl kube-scheduler
	@mkdir -p $@
	for p in . ./test/coredns ./test/realcluster/probe; do CGO_ENABLED=0 $(GO) build -o $@/ $$p || exit 1; done
	CGO_ENABLED=0 $(GO) build -tags agentonly -o $@/fairway-agent .
	$(GO) build -C hack/manifests -o $(CURDIR)/$@/helm helm.sh/helm/v3/cmd/helm
	./hack/flannel/build $@
.PHONY: always # what depends on it is made each time; a phony target itself would have no pattern

REALCLUSTER := TestRealCluster TestHelm TestShipped

# The release that is upgraded from; as long as there is none, the commit that has the first chart.
LAST ?= $(or $(shell git describe --tags --abbrev=0 --match 'v*' 2>/dev/null),d558035d)

bin/last/%: # the program and the chart of an older commit
	mkdir -p $@/source
	git archive $* | tar -x -C $@/source
	CGO_ENABLED=0 $(GO) build -C $@/source -o $(CURDIR)/$@/fairway .
	cp -rL $@/source/deploy/chart $@/chart # links lead out of it
	rm -rf $@/source

check/real-cluster: bin/real-cluster/$(KUBERNETES) ## clusters made by kubeadm, with containerd and CNI plugins: kube-proxy to Fairway and back, every mode, the chart, under load: half an hour to build it, and half an hour
	./hack/install-deps.sh test real-cluster
	FAIRWAY_KUBERNETES=$(CURDIR)/bin/kubernetes/$(KUBERNETES) FAIRWAY_REALCLUSTER=$(CURDIR)/bin/real-cluster/$(KUBERNETES) \
		$(call TAGGED,realcluster) -timeout 120m -run '^($(subst $() ,|,$(REALCLUSTER)))$$' ./test/realcluster

check/upgrade: bin/real-cluster/$(KUBERNETES) bin/last/$(LAST) ## the last release upgraded to this one and back in a cluster made by kubeadm, in each mode, under load
	./hack/install-deps.sh test real-cluster
	FAIRWAY_KUBERNETES=$(CURDIR)/bin/kubernetes/$(KUBERNETES) FAIRWAY_REALCLUSTER=$(CURDIR)/bin/real-cluster/$(KUBERNETES) \
		FAIRWAY_REALCLUSTER_LAST=$(CURDIR)/bin/last/$(LAST) \
		$(call TAGGED,realcluster) -timeout 60m -run '^TestUpgrade$$' ./test/realcluster

# Kubernetes' own tests, and what they run: e2e.test, ginkgo and agnhost, of the version that their module pins.
bin/sig-network: always
	@mkdir -p $@
	CGO_ENABLED=0 $(GO) build -C test/conformance/kubernetes -o $(CURDIR)/$@/ github.com/onsi/ginkgo/v2/ginkgo k8s.io/kubernetes/test/images/agnhost
	CGO_ENABLED=0 $(GO) test -C test/conformance/kubernetes -c -o $(CURDIR)/$@/e2e.test k8s.io/kubernetes/test/e2e
	install -m 644 $$($(GO) list -C test/conformance/kubernetes -m -f '{{.Dir}}' k8s.io/kubernetes)/test/images/agnhost/porter/localhost.* $@/

check/sig-network: bin/real-cluster/$(KUBERNETES) bin/sig-network ## Kubernetes' own Conformance tests of [sig-network] in a cluster made by kubeadm, in each mode: hours of building, the first time, and an hour
	./hack/install-deps.sh test real-cluster sig-network
	FAIRWAY_KUBERNETES=$(CURDIR)/bin/kubernetes/$(KUBERNETES) FAIRWAY_REALCLUSTER=$(CURDIR)/bin/real-cluster/$(KUBERNETES) \
		FAIRWAY_REALCLUSTER_E2E=$(CURDIR)/bin/sig-network \
		$(call TAGGED,realcluster) -timeout 300m -run '^TestKubernetes$$' ./test/realcluster

check/routers: build ## what real routers make of what nodes announce: minutes, since sessions begin anew for each setting
	./hack/install-deps.sh test
	$(call TAGGED,routers) -timeout 30m -run '^(TestRouters|TestRouterMatrix|TestBirdMatrix)$$' ./lab

check/drain: build ## connections through nodes that are drained, in each mode, also over routers, nodes that may not announce, and stable flows, nodes that lose power meanwhile, a machine that shuts down, a node with 10,000 addresses, and the last endpoint of a Service: eight minutes
	./hack/install-deps.sh test
	FAIRWAY_DRAIN=isolated unshare --mount --propagation private $(call TAGGED,drain) -timeout 15m \
		-run '^(TestDrainKeepsConnections|TestDrainUnderRouters|TestWhoMayNotAnnounce|TestStableFlows|TestKeeperLost|TestShutdown|TestDrainManyAddresses|TestLastEndpoint)$$' ./lab

check/simulate: ## nodes of a link that decide who owns an address, with all that may happen to them, from one seed after the other until it is stopped
	FAIRWAY_SIMULATE=1000000000 $(GO) test -v -timeout 0 -run '^TestSimulate$$' ./test/simulate

check/simulate-undone: ## whether the simulation finds the faults that were mended, each when its mend is undone: minutes
	$(call TAGGED,undone) -timeout 30m -run '^TestUndone$$' ./test/simulate

# This kernel may lack them; the virtual machine's has them.
check/stacked: ## layer 2 on a bond that goes over to its other interface, and on a VLAN of it; BGP in VRFs, with FRR and packets: two minutes, in the virtual machine
	./hack/install-deps.sh test
	@mkdir -p bin
	for p in l2 bgp; do CGO_ENABLED=0 $(GO) test -tags stacked -c -o bin/$$p.test ./announce/$$p || exit 1; done
	$(GO) run ./test/invm -modules bonding,8021q,veth,bridge bin/l2.test -test.v -test.run '^TestStacked$$'
	$(GO) run ./test/invm -modules vrf,veth -read /usr/lib/frr/zebra,/usr/lib/frr/bfdd,/usr/lib/frr/bgpd,/etc/group,/etc/passwd bin/bgp.test -test.v -test.run '^(TestDevicesInVRFs|TestRouterInVRF)$$'

check/xdp: ## ebpf mode's programs in drivers, and all cases and the fuzzer of ebpf mode with them
	./hack/install-deps.sh test
	$(GO) test -v -count=1 -run '^TestXDP' ./dataplane/ebpf/packet
	FAIRWAY_CONFORMANCE_XDP=native $(GO) test -v -count=1 -timeout 40m -run '^(TestPlanes|TestFuzzPlanes|TestUpgrade)$$/^ebpf' ./test/conformance/planes

check/kernels: ## cases in nftables, iptables and ebpf mode on the kernels of Debian 11, 12, 13 and the newest of its backports, in virtual machines: an hour; KERNEL=bullseye for one
	./hack/install-deps.sh test
	$(call TAGGED,kernels) -timeout 180m -run '^TestKernels$$/$(KERNEL)' ./test/conformance/planes

check/sites: ## cases in every mode where nodes are wired as real ones are: bridges, a bond, VLANs, tunnels, somebody else's programs. What this kernel lacks, and ipvs mode, is in the virtual machine: the better part of an hour; SITE=bond for one, MODE=ebpf for one
	./hack/install-deps.sh test
	$(call TAGGED,sites) -timeout 180m -run '^TestSites$$/$(or $(SITE),.)/$(or $(MODE),.)' ./test/conformance/planes

check/ipvs: ## in the virtual machine: every mode changed for ipvs and back, ipvs killed with connections under way, all cases in both families: half an hour
	./hack/install-deps.sh test
	$(call TAGGED,ipvs) -timeout 60m -run '^(TestSwitch|TestUpgrade|TestPlanes)$$/^(tour-ipvs|ipvs)$$' ./test/conformance/planes

check/vm: ## the virtual machine in which other tests run: one that freezes, one that doesn't start: minutes
	./hack/install-deps.sh test
	$(call TAGGED,vm) -timeout 20m -run '^(TestFallsBack|TestFrozen|TestOnceMore)$$' ./test/vm

# It fills the table, which is the whole kernel's and may have room for very many.
check/smallconntrack: ## connections are handed over to a conntrack table that is full
	$(call TAGGED,smallconntrack) -timeout 10m -run '^TestHandoverToFullTable$$' ./dataplane/ebpf/packet

# Each decoder of the API server, its controllers and its clients that reads what others write:
# folder:test. Of those that two planes or both ends read, too.
FUZZERS := apiserver/pki:FuzzRotation apiserver/storage:FuzzDamage controller/nodecert:FuzzRequest \
	endpoint/check:FuzzFindings endpoint/check:FuzzParse endpoint/publish:FuzzParse kube/join:FuzzTokens \
	kube/protobuf:FuzzDecode internal/iprange:FuzzParse compile:FuzzObjects compile:FuzzAnnotations
FUZZTIME ?= 10m

check/fuzz: ## decoders of what others write, in the API server and its controllers: ten minutes for each; FUZZTIME=1m for as long, FUZZERS=kube/join:FuzzTokens for one
	@for f in $(FUZZERS); do echo "== $$f"; $(GO) test "./$${f%:*}" -run '^$$' -fuzz "^$${f#*:}$$" -fuzztime $(FUZZTIME) || exit 1; done

check/machinegone: build ## for how long after a machine has lost power new connections still go to its endpoints: 50 times, five minutes
	./hack/install-deps.sh test
	$(call TAGGED,machinegone) -timeout 30m -run '^TestMachineGone$$' ./lab

check/docs: ## blocks of commands of the documents as they stand there, but for those that other tests run: some minutes
	./hack/install-deps.sh test
	$(call TAGGED,docs) -timeout 30m -run '^TestDocuments$$' ./cmd

check/manynodes: build ## agents of nodes elsewhere, asked by nodes/proxy and by pods/exec, with few rights, and silent: half a minute
	./hack/install-deps.sh test
	$(call TAGGED,manynodes) -timeout 10m -run '^TestManyNodes$$' ./lab

check/traces: build ## a thousand traced connections, and traces in iptables-legacy and IPVS (in the virtual machine): minutes
	./hack/install-deps.sh test
	$(call TAGGED,traces) -timeout 40m -run '^(TestTrace|TestTraceLegacy|TestTraces|TestTraceIPVS)$$' ./lab

check/dashboard: build ## the queries of deploy/monitoring's dashboard, by Debian's Prometheus that scrapes an agent in a lab: a minute
	./hack/install-deps.sh test
	$(call TAGGED,dashboard) -timeout 10m -run '^TestDashboard$$' ./lab

check/manyservices: build ## what explain reads and takes with 10,000 Services of five endpoints: a minute
	$(call TAGGED,manyservices) -timeout 10m -run '^TestExplainManyServices$$' ./lab

check/causes: build ## the causes that doctor names, provoked in labs of every mode
	./hack/install-deps.sh test
	$(call TAGGED,causes) -timeout 40m -run '^TestCausesInAllModes$$' ./lab

# In a network namespace, where servers can be cut off from each other. The program
# that an upgrade begins with has a clock that can be set: see test/clockjump.
check/servers: build ## three servers under a load of writes and of connections: killed, silent, cut off, full, with a wrong clock, upgraded, with other authorities. And the commands of docs/how-to/operating.md
	./hack/install-deps.sh test
	cd test/linearizability/checker && $(GO) mod download
	$(GO) test -c -o bin/servers.test ./apiserver
	cd apiserver && FAIRWAY_SERVERS=isolated unshare --net sh -c 'ip link set lo up && ../bin/servers.test -test.v -test.timeout 30m -test.run "^TestFaults$$"'
	./test/clockjump/overlay bin/clockjump >bin/clockjump.json
	CGO_ENABLED=0 $(GO) build -overlay bin/clockjump.json -ldflags "-X github.com/fairway-net/fairway/internal/version.Version=v0.0.1-before" -o bin/fairway-before .
	FAIRWAY_BEFORE=$(CURDIR)/bin/fairway-before FAIRWAY_AFTER=$(CURDIR)/fairway unshare --mount --propagation private $(call TAGGED,servers) -timeout 30m -run '^TestServersFail$$' ./cmd
	$(call TAGGED,servers) -timeout 30m -run '^TestOperating$$' ./cmd
	$(call TAGGED,servers) -timeout 30m -run '^TestReplaceAuthorities$$' ./kube/join

check/nothing-lost: ## 50 rolling updates, 2,000 changes of routes and certificates and ten restarts of the gateway at 2,000 requests/s: minutes; ENGINE=haproxy for that engine
	./hack/install-deps.sh test
	FAIRWAY_NOTHING_LOST=long FAIRWAY_TEST_ENGINE=$(ENGINE) $(GO) test -v -count=1 -timeout 30m -run '^TestNothingLost$$' ./ingress/gateway

check/apiaway: build ## a Gateway at 500 requests a second while the API is away, longer than Leases hold, and when it is back: three minutes; FAIRWAY_API_AWAY=10m for longer, ENGINE=haproxy for that engine
	./hack/install-deps.sh test
	FAIRWAY_TEST_ENGINE=$(ENGINE) $(call TAGGED,apiaway) -timeout 30m -run '^TestAPIAway$$' ./lab

check/differential: bin/kubernetes/$(KUBERNETES) ## the same objects, valid and almost valid, at kube-apiserver and at ours: what is taken, the defaults, the fields that a refusal names; two minutes. It prints the differences that are neither mended nor wanted; SEED=7 OBJECTS=3000 for one run again
	@mkdir -p bin && $(GO) test -tags differential -c -o bin/differential.test ./test/differential
	cd test/differential && FAIRWAY_KUBERNETES=$(CURDIR)/bin/kubernetes/$(KUBERNETES) unshare --net sh -c 'ip link set lo up && ../../bin/differential.test -test.v -seed $(or $(SEED),0) -objects $(or $(OBJECTS),10000)'

# --- others' suites -----------------------------------------------------------

check/gateway-conformance: build ## Gateway API's own conformance suite, in a lab: a minute and a half, once it is built; ENGINE=haproxy for that engine
	./hack/install-deps.sh test
	ENGINE=$(or $(ENGINE),native) FAIRWAY=$(CURDIR)/fairway ./test/conformance/gateway/run

check/api-conformance: build ## Kubernetes' own conformance tests that need no running pods, against a server, into docs/results/conformance.md: ten minutes
	FAIRWAY=$(CURDIR)/fairway ./test/conformance/kubernetes/run

check/helm: build ## a usual chart by Helm's own library, and cert-manager's definitions, against a server: a quarter of a minute, once it is built
	cd test/helm && FAIRWAY=$(CURDIR)/fairway $(GO) test -count=1 .

check/h2spec: ## h2spec against the native engine, in the clear and over TLS: a minute
	@mkdir -p bin && cd test/conformance/h2spec && $(GO) build -o ../../../bin/h2spec github.com/summerwind/h2spec/cmd/h2spec
	H2SPEC=$(CURDIR)/bin/h2spec $(call TAGGED,h2spec) -run '^TestH2spec$$' ./ingress/engine/native

check/grpc: ## gRPC's own interoperability tests through both engines, in the clear and over TLS: seconds, once they are built
	./hack/install-deps.sh test
	@mkdir -p bin && cd test/conformance/grpc && for p in client server; do $(GO) build -o ../../../bin/grpc-$$p google.golang.org/grpc/interop/$$p || exit 1; done
	GRPC_CLIENT=$(CURDIR)/bin/grpc-client GRPC_SERVER=$(CURDIR)/bin/grpc-server $(call TAGGED,grpc) -run '^TestGRPC$$' ./ingress/engines

# --- measurements -------------------------------------------------------------

.PHONY: bin/fairway-bench
bin/fairway-bench: build
	CGO_ENABLED=0 $(GO) build -ldflags "-s -w -X main.version=$(VERSION)" -o $@ ./test/fairway-bench

check/bench: bin/fairway-bench ## measure everything but the following, in namespaces of this machine, and write it down: a quarter of an hour
	./hack/install-deps.sh test
	bin/fairway-bench --out docs/results/performance.md

check/soak: bin/fairway-bench ## a million endpoint changes, and what becomes of the kernel, memory and open files
	./hack/install-deps.sh test
	bin/fairway-bench --only soak --out docs/results/performance.md

# Not iptables-nft, with which kube-proxy takes over five minutes to start at 10,000 Services.
check/bench-kube-proxy: bin/fairway-bench bin/kubernetes/$(KUBERNETES) ## the real kube-proxy beside our modes, in the same way
	./hack/install-deps.sh test
	for services in 1000 10000; do bin/fairway-bench --kube-proxy bin/kubernetes/$(KUBERNETES)/kube-proxy --mode nftables,iptables-legacy \
		--only start,latency,cpu,memory,connections --services $$services --endpoints 5 --out docs/results/performance.md || exit 1; done

# The kernel at hand may lack IP_VS. The virtual machine's clock counts instructions (see test/vm), so that other work here
# matters less. It wants an idle machine all the same, or takes hours.
check/bench-ipvs: bin/fairway-bench ## ipvs mode beside nftables, in the virtual machine
	./hack/install-deps.sh test
	for services in 100 1000; do FAIRWAY_VM_ACCEL=icount $(GO) run ./test/invm -api bin/fairway -modules ip_vs,ip_vs_rr,dummy -files docs/results/performance.md -read bin/fairway \
		bin/fairway-bench --fairway $(CURDIR)/bin/fairway --mode nftables,ipvs --only start,latency,cpu,service,memory,connections,datapath --services $$services --endpoints 3 \
		--section 'the virtual machine' --out docs/results/performance.md || exit 1; done

check/bench-announce: bin/fairway-bench ## what clients notice when a node that announces addresses is drained, killed, cut off or without power; beside keepalived: half an hour
	./hack/install-deps.sh test
	bin/fairway-bench announce --mode nftables --out docs/results/performance.md
	bin/fairway-bench announce --mode ebpf --way l2,bgp,bfd --out docs/results/performance.md

# --- what users install, and see ----------------------------------------------

check/image: ## the image, built without a container engine or a registry, and its containers run as the DaemonSet says
	./hack/install-deps.sh test image
	./deploy/try-image bin/image

check/deb: build ## a Debian package, in bin/deb, and that package installed, upgraded, removed and purged in a clean Debian system
	./hack/install-deps.sh image
	./deploy/debian/build fairway $(shell $(GO) env GOARCH) $(VERSION) bin/deb
	rm -rf bin/deb-test/old bin/deb-test/new
	./deploy/debian/build fairway $(shell $(GO) env GOARCH) 0.0.1 bin/deb-test/old
	./deploy/debian/build fairway $(shell $(GO) env GOARCH) 0.0.2 bin/deb-test/new
	./deploy/debian/try bin/deb-test/old/*.deb bin/deb-test/new/*.deb bin/deb-test

check/systemd: build ## the units under a real systemd: two Debian systems that boot, join, are rebooted, leave and are purged: one to three minutes
	./hack/install-deps.sh image
	./test/systemd/debian bin/systemd/debian
	FAIRWAY_SYSTEMD=$(CURDIR)/bin/systemd/debian FAIRWAY=$(CURDIR)/fairway $(call TAGGED,systemd) -timeout 10m -run '^TestSystemd$$' ./deploy

check/site: site ## the site of the documents in a real Chromium, wide and as on a telephone: links, what axe finds, and the width
	./hack/install-deps.sh page
	cd docs/site && npm run --silent check

check/page: ## the page of `fairway web` in a real Chromium, by keyboard and by axe, with pictures of every view in bin/page: a minute; it takes node and npm
	./hack/install-deps.sh page
	cd web && npm ci --ignore-scripts --loglevel=error
	rm -rf bin/page
	FAIRWAY_PAGE=$(CURDIR)/bin/page $(call TAGGED,page) -timeout 10m -run '^TestPage$$' ./diagnose/web
	FAIRWAY_PAGE=$(CURDIR)/bin/page $(call TAGGED,page) -timeout 10m -run '^TestPageOfLab$$' ./lab

check/web: ## build the page of `fairway web`, from web/ into diagnose/web/dist; it takes node and npm
	cd web && npm ci --ignore-scripts --loglevel=error && npx tsc && node build.mjs

check/pictures: build ## docs/pictures: the README's lab as it is recorded, and the plots of docs/results/performance.md
	./hack/install-deps.sh demo pictures
	./hack/pictures/record
	./hack/pictures/figures
	$(GO) run ./hack/pictures/draw

check/first-minutes: build ## docs/results/first-minutes: what three new users see who follow README.md, with times
	./hack/install-deps.sh test
	FAIRWAY_RECORD=$(CURDIR)/docs/results/first-minutes $(GO) test -v -count=1 -run '^(TestREADMELab|TestREADMEOperator|TestFirstFiveMinutes)$$' ./cmd

# Of the tests those that need no other machine and no program of the host's.
ARM64_TESTS := ebpf=^(TestLoad|TestProbe|TestLife)$$ packet=^(TestTranslate|TestMasquerade|TestRefuse|TestErrors|TestGarbage|TestRoom|TestCounts)$$ sock=^TestReconnect

check/arm64: ## in an emulated arm64 machine: the eBPF programs load and answer as their tests say, and labs in ebpf and nftables mode serve. Minutes
	./hack/install-deps.sh arm64
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build -ldflags "$(LDFLAGS)" -o bin/arm64/fairway .
	for p in dataplane/ebpf dataplane/ebpf/packet dataplane/ebpf/sock; do CGO_ENABLED=0 GOARCH=arm64 $(GO) test -c -o bin/arm64/$$(basename $$p).test ./$$p || exit 1; done
	./test/arm64/try bin/arm64/fairway bin/arm64 $(foreach t,$(ARM64_TESTS),'bin/arm64/$(subst =,.test=,$(t))')

check/reproducible: ## a release built twice of what is committed, the second time elsewhere with empty caches: the same bytes; a quarter of an hour
	./hack/release/again $(VERSION) bin/reproducible

check/audit: ## known vulnerabilities in what the program calls, by Go's database, which it needs the network for
	$(GO) run -modfile=hack/release/go.mod golang.org/x/vuln/cmd/govulncheck .
