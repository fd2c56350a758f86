# The two commands of the README are `make demo` and `make test`. Everything else
# that is tried now and then is a check: `make check` lists them, test/checks.mk has them.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X github.com/fairway-net/fairway/internal/version.Version=$(VERSION)
LINT     := $(GO) tool -modfile=tools/go.mod golangci-lint

.PHONY: build demo test check generate lint release site clean

# Without cgo: kustomize, in kubectl, would have the linker keep every symbol for plugins.
# A copy, since the linker leaves a file in the page cache of which Linux 6.18 maps 60 MB more into each process
# (docs/results/performance-notes.md, "Peak memory").
build: ## the binary, in ./fairway
	CGO_ENABLED=0 $(GO) build -ldflags "$(LDFLAGS)" -o bin/fairway .
	cp bin/fairway fairway.new && mv -f fairway.new fairway

demo: ## install what is missing, build, and show it
	./hack/install-deps.sh demo
	@$(MAKE) --no-print-directory build
	./fairway lab demo

test: ## everything that CI runs
	./hack/install-deps.sh test generate
	@$(MAKE) --no-print-directory lint check/generated check/race check/rest check/modules

check: $(if $(NAME),check/$(NAME)) ## what takes a special environment, or long: `make check` lists, `make check NAME=drain` runs
	@$(if $(NAME),:,sed -nE 's/^check\/([a-z0-9-]+):[^#]*## (.*)/\1\t\2/p' test/checks.mk | sort | awk -F '\t' '{printf "%-20s %s\n", $$1, $$2}')

generate: ## regenerate everything that is generated
	./hack/install-deps.sh generate
	$(GO) generate ./...

lint: ## the linters, with every build tag of tests
	$(LINT) run --allow-parallel-runners ./...

release: ## for amd64 and arm64: static binaries with their licences, Debian and RPM packages, container images, lists of parts; checksums of all, in bin/release
	rm -rf bin/release
	./hack/release/build $(VERSION) bin/release

site: ## the documents as a static site, in bin/site; it takes node and npm
	cd docs/site && npm ci --ignore-scripts --loglevel=error && npm run --silent build

clean:
	rm -rf fairway bin

include test/checks.mk
