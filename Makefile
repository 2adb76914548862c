# make            what there is
# make test       what must pass
# make verify     what must be tidy
#
# CI runs .ci/run, which is these two and nothing else.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VERSION := $(or $(VERSION),$(shell git describe --tags --always --dirty 2>/dev/null || echo dev))
LDFLAGS := -s -w -X main.version=$(VERSION)

# One build tag for what needs a real API server. The rest runs without.
TAGS := envtest
# A cold start of etcd and kube-apiserver beside a compiler takes its time.
TEST_TIMEOUT ?= 30m
FUZZ_TIME ?= 30s
E2E_ROUNDS ?= 3
# Other seeds than the first ones, of live sessions in which the daemon is killed.
E2E_SEEDS ?= 21-220
# The guards that make guards takes out, by commas; all when empty.
GUARDS ?=
BENCH_BYTES ?= 1G
SCALE_SESSIONS ?= 10000
# What keeps the memory in demo and dev: rules, a stand-in that needs nothing,
# or appserver, the real one, which needs npm once, and git.
LETTA ?= rules
LETTA_TOOL := $(if $(filter appserver,$(LETTA)),letta-appserver)

# The race detector needs a C compiler, which not every machine has.
RACE := $(if $(and $(filter 1,$(shell go env CGO_ENABLED)),$(shell command -v $$(go env CC))),-race)

.PHONY: help
help: ## Say what there is.
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build

.PHONY: build
build: ## Build the three binaries into bin/.
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/undersong ./cmd/undersong-hook ./cmd/undersong-controller

.PHONY: demo
demo: build thread-tools $(LETTA_TOOL) ## Show the whole way on loopback; LETTA=appserver: on the real App Server.
	go run ./test/demo -letta=$(LETTA)

.PHONY: dev
dev: build thread-tools $(LETTA_TOOL) ## Run the demo's stack until Ctrl-C; its state stays in .dev/.
	go run ./test/demo -letta=$(LETTA) -dev

# Both want git, or VERSION and what the tool then asks for. The same commit and
# the same Go make the same bytes.
RELEASE := go -C hack/tools/release run .
IMAGE := ghcr.io/undersong-dev/undersong-controller

.PHONY: image
image: ## Build the controller's image for amd64 and arm64 into dist/, without Docker.
	$(RELEASE) image -version '$(VERSION)'

.PHONY: release
release: ## Make image, archives, chart and sums in dist/, which it empties (SIGN_KEY=an SSH key).
	rm -rf dist
	$(RELEASE) image -version '$(VERSION)'
	$(RELEASE) archives -version '$(VERSION)' $(if $(SIGN_KEY),-sign-key '$(abspath $(SIGN_KEY))')

##@ Test

.PHONY: test
test: thread-tools helm letta-try race-note ## Run everything: race detector, API server, store, faults and kills.
	go test $(RACE) -tags $(TAGS) -timeout $(TEST_TIMEOUT) $$(go list -tags $(TAGS) ./... | grep -Ev '/(test/e2e|test/claude/live|controllers/session)$$')
	go test -tags $(TAGS) -timeout $(TEST_TIMEOUT) ./controllers/session # with the race detector in make e2e: it triples its minutes
	go -C internal/redact/compare test ./...
	go -C hack/tools/release test ./...
	go test -tags $(TAGS) -timeout $(TEST_TIMEOUT) -count=1 ./test/e2e/...

.PHONY: test-unit
test-unit: versitygw race-note ## Run what needs no API server.
	go test $(RACE) ./...

.PHONY: e2e
e2e: thread-tools letta-try ## Kill at every crash point, many times over (E2E_ROUNDS=3), then make guards.
	go test -tags $(TAGS) -timeout 6h -count=1 -v ./test/e2e/... -rounds $(E2E_ROUNDS)
	$(MAKE) --no-print-directory e2e-matrix
	go test $(RACE) -tags $(TAGS) -timeout 2h -count=1 ./controllers/session
	go -C hack/tools/release test -timeout 1h -count=1 . -product
	go run ./test/guards

# Its cells are named row/moment, and on the stand-in cells/row/moment.
MATRIX ?= ^TestFaultMatrix

.PHONY: e2e-matrix
e2e-matrix: thread-tools letta-try ## Meet each fault at each moment, on stand-in and App Server (MATRIX=^TestFaultMatrixOnTheAppServer$$/hang).
	go test -tags $(TAGS) -timeout 3h -count=1 -v -run '$(MATRIX)' ./controllers/session -matrix

.PHONY: e2e-seeds
e2e-seeds: thread-tools ## Play live sessions of more seeds, kill the daemon in each (E2E_SEEDS=21-220).
	go test -tags $(TAGS) -timeout 12h -count=1 -v -run '^TestALiveSession' ./test/e2e -seeds $(E2E_SEEDS)

.PHONY: guards
guards: thread-tools ## Take each guard out of the code and see its test fail (GUARDS=W07,W09).
	go run ./test/guards -only '$(GUARDS)'

# Needs a clone that has the earlier version: git fetch --tags --unshallow.
PREVIOUS ?= $(shell git describe --tags --match 'v[0-9]*' --abbrev=0 HEAD^ 2>/dev/null)

.PHONY: e2e-skew
e2e-skew: thread-tools ## Let an earlier version and this one work together (PREVIOUS=a tag or commit).
	PREVIOUS='$(PREVIOUS)' go test -tags $(TAGS) -timeout $(TEST_TIMEOUT) -count=1 -v ./test/skew

# A cluster of one node in namespaces of its own. The tools are built once, in a
# quarter of an hour. What is missing here is said, and then nothing is tested.
NODE_IMAGES := .node/images
CLUSTER_TAG := $(patsubst v%,%,$(subst +,_,$(VERSION)))
STATIC := CGO_ENABLED=0 go build -trimpath -ldflags '-s -w'

.PHONY: e2e-cluster
e2e-cluster: ## Install it into a real cluster of one node, and let everything happen to it (Linux, root).
	@if why=$$(hack/node/node check); then $(MAKE) --no-print-directory e2e-cluster-run; else echo "e2e-cluster: SKIPPED: $$why" >&2; fi

.PHONY: e2e-cluster-run
e2e-cluster-run: build thread-tools helm node containerd containerd-shim-runc-v2 ctr
	rm -rf $(NODE_IMAGES) && mkdir -p $(NODE_IMAGES)
	$(RELEASE) image -version '$(VERSION)' -platforms linux/$$(go env GOARCH) -out '$(CURDIR)/.node/dist'
	cp .node/dist/undersong-controller_$(CLUSTER_TAG)_image.tar $(NODE_IMAGES)/controller.tar
	$(STATIC) -o .node/programs/ ./test/cluster/pause ./test/cluster/letta
	for name in pause letta; do $(RELEASE) pack -platform linux/$$(go env GOARCH) -name node.test/$$name:1 -out '$(CURDIR)'/$(NODE_IMAGES)/$$name.tar '$(CURDIR)'/.node/programs/$$name; done
	$(RELEASE) pack -platform linux/$$(go env GOARCH) -name node.test/versitygw:1 -out '$(CURDIR)/$(NODE_IMAGES)/versitygw.tar' $(TOOLS)/versitygw $$(ldd $(TOOLS)/versitygw | grep -o '/[^ ]*' || true)
	go test -tags cluster -timeout 1h -count=1 -v ./test/cluster -image '$(IMAGE):$(CLUSTER_TAG)' -images '$(CURDIR)/$(NODE_IMAGES)'

# The program is proprietary and comes from npm: where it cannot be had, the
# tests with it are skipped, and say so.
.PHONY: e2e-claude
e2e-claude: thread-tools ## Let the real Claude Code work with all of it (ACCEPT_CLAUDE_LICENSE=1).
	@hack/tools/claude-code/install || echo "e2e-claude: the tests with the real Claude Code are SKIPPED: see above" >&2
	go test -tags $(TAGS) -timeout $(TEST_TIMEOUT) -count=1 -v ./test/claude/live

.PHONY: e2e-letta
e2e-letta: letta-archived ## Run the suite of all Lettas over the archived REST server (needs Python 3.11 to 3.13).
	go test -tags archived -timeout 60m -count=1 -run Archived -v ./internal/letta/api

# A few minutes; BENCH_BYTES=64M is one. The comparison with gitleaks is a
# module of its own: where it cannot be fetched, its row says "not compared".
.PHONY: bench
bench: bench-transcripts bench-delivery bench-hooks ## Measure what is promised, in three tables (BENCH_BYTES=1G).

.PHONY: bench-transcripts
bench-transcripts: ## Measure the promises about transcripts alone.
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/undersong
	go build -o bin/bars ./test/bench/bars
	bin/bars -bytes $(BENCH_BYTES) -undersong bin/undersong -gitleaks 'go -C internal/redact/compare run . -time'

.PHONY: bench-delivery
bench-delivery: build thread-tools ## Measure the promises about delivery alone, on the whole stack.
	go run ./test/bench/delivery

.PHONY: bench-hooks
bench-hooks: build ## Measure the promises about the hook alone, as a whole process (Linux).
	go build -o bin/hookbench ./test/bench
	bin/hookbench bars

# Ten to twenty minutes, nearly all of them for making the Sessions, so it is no
# part of bench; SCALE_SESSIONS=1000 is two.
.PHONY: bench-scale
bench-scale: build thread-tools ## Measure one controller and many Sessions (SCALE_SESSIONS=10000).
	go build -o bin/scale ./test/bench/scale
	bin/scale -sessions $(SCALE_SESSIONS)

.PHONY: bench-go
bench-go: ## Run the Go benchmarks.
	go test -run '^$$' -bench . -benchmem ./...
	go -C internal/redact/compare test -run '^$$' -bench . ./...

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZ_TIME=30s.
	@grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "fuzz: $$(dirname "$$file") $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) "$$(dirname "$$file")"; \
		done; \
	done

.PHONY: race-note
race-note:
	@$(if $(RACE),:,echo "test: the race detector is OFF: it needs cgo and a C compiler" >&2)

# The real App Server comes from npm, which not every machine reaches.
.PHONY: letta-try
letta-try:
	@hack/tools/letta-appserver/install || echo "test: the tests with the real App Server are SKIPPED: see above" >&2

##@ Keep in order

.PHONY: generate
generate: controller-gen ## Write deepcopy code.
	$(TOOLS)/controller-gen object paths=./api/...

.PHONY: manifests
manifests: controller-gen ## Write the CRDs and the controller's ClusterRole, also into the chart.
	$(TOOLS)/controller-gen crd paths=./api/... output:crd:dir=config/crd
	$(TOOLS)/controller-gen rbac:roleName=undersong-controller paths=./controllers/... output:rbac:dir=config/rbac
	hack/chart

.PHONY: chart
chart: manifests helm ## Lint the Helm chart and pack it into dist/.
	for values in charts/undersong/ci/*.yaml; do $(TOOLS)/helm lint --strict --quiet charts/undersong --values $$values; done
	mkdir -p dist && $(TOOLS)/helm package charts/undersong --destination dist

.PHONY: fmt
fmt: golangci-lint ## Format the Go code.
	$(TOOLS)/golangci-lint fmt

.PHONY: lint
lint: golangci-lint ## Lint the Go code.
	$(TOOLS)/golangci-lint run --allow-parallel-runners

# Generators first, then what only reads, so that one run shows everything that
# is wrong.
.PHONY: verify
verify: generate manifests golangci-lint ## Check that all is generated, tidy, linted and in its layer.
	git diff --exit-code
	@left=$$(git status --porcelain); if [ -n "$$left" ]; then echo "verify: not committed:"; echo "$$left"; exit 1; fi
	go mod tidy -diff
	$(TOOLS)/golangci-lint fmt --diff
	$(TOOLS)/golangci-lint run --allow-parallel-runners
	go vet -tags $(TAGS) ./...
	go vet -tags crashpoints ./internal/crash ./cmd/...
	go vet -tags cluster ./test/cluster/...
	GOOS=darwin CGO_ENABLED=0 go build -o /dev/null ./cmd/undersong-hook
	GOOS=windows CGO_ENABLED=0 go build -o /dev/null ./cmd/undersong-hook
	go test -count=1 ./test/closure

# Not part of verify: compiling client-go twice more takes minutes.
.PHONY: cross
cross: ## Compile the workstation's programs and their tests for macOS and Windows.
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet ./agent/... ./cmd/...
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 go vet ./agent/... ./cmd/...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go build -o /dev/null ./cmd/undersong
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 go build -o /dev/null ./cmd/undersong

##@ Tools

# Built once from the Go module proxy, each when a target first needs it.
TOOLS := $(CURDIR)/.tools/bin
KUBE := $(shell sed -n 's/^[[:space:]]*k8s.io\/kubernetes v\([0-9]*\)\.\([0-9]*\)\(.*\)/\1 \2 v\1.\2\3/p' hack/tools/kube/go.mod)
KUBE_LDFLAGS := -X k8s.io/component-base/version.gitMajor=$(word 1,$(KUBE)) -X k8s.io/component-base/version.gitMinor=$(word 2,$(KUBE)) -X k8s.io/component-base/version.gitVersion=$(word 3,$(KUBE))

CONTAINERD := $(shell sed -n 's/^[[:space:]]*github.com\/containerd\/containerd\/v2 v\([^ ]*\).*/\1/p' hack/tools/containerd/go.mod)

# $(call tool,NAME,MODULE,PACKAGE,LDFLAGS)
define tool
.PHONY: $(1)
$(1):
	@hack/tools/build $(2) $(3) '$$(TOOLS)/$(1)' '$(4)'
endef

$(eval $(call tool,kube-apiserver,kube,k8s.io/kubernetes/cmd/kube-apiserver,$(KUBE_LDFLAGS)))
$(eval $(call tool,kubectl,kube,k8s.io/kubernetes/cmd/kubectl,$(KUBE_LDFLAGS)))
$(eval $(call tool,etcd,etcd,.,))
$(eval $(call tool,versitygw,versitygw,github.com/versity/versitygw/cmd/versitygw,))
$(eval $(call tool,controller-gen,controller-gen,sigs.k8s.io/controller-tools/cmd/controller-gen,))
$(eval $(call tool,helm,helm,helm.sh/helm/v4/cmd/helm,))
$(eval $(call tool,node,node,.,$(KUBE_LDFLAGS)))
$(foreach name,containerd containerd-shim-runc-v2 ctr,$(eval $(call tool,$(name),containerd,github.com/containerd/containerd/v2/cmd/$(name),-X github.com/containerd/containerd/v2/version.Version=$(CONTAINERD))))
# With cgo it wants headers of file systems that nobody has here.
containerd containerd-shim-runc-v2 ctr: export CGO_ENABLED := 0
$(eval $(call tool,golangci-lint,golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,))

# What KUBEBUILDER_ASSETS has is not built: it wins.
ASSETS := $(foreach name,etcd kube-apiserver kubectl,$(if $(and $(KUBEBUILDER_ASSETS),$(wildcard $(KUBEBUILDER_ASSETS)/$(name))),,$(name)))

.PHONY: envtest-assets
envtest-assets: $(ASSETS) ## Build kube-apiserver, etcd and kubectl, unless KUBEBUILDER_ASSETS has them.

.PHONY: thread-tools
thread-tools: envtest-assets versitygw

.PHONY: tools
tools: thread-tools controller-gen golangci-lint ## Build every tool into .tools/.

.PHONY: letta-appserver
letta-appserver: ## Fetch Letta's App Server and Node into .tools/letta (needs npm and git).
	@hack/tools/letta-appserver/install

.PHONY: letta-archived
letta-archived: ## Fetch Letta's archived server into .tools/letta-archived (needs Python and PyPI).
	@hack/tools/letta-archived/install

.PHONY: clean
clean: ## Remove bin/ and dist/. Tools (.tools/) and make dev's state (.dev/) stay.
	rm -rf bin dist
