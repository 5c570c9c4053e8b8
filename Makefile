# Each target sets up what it lacks, says what it does, and names what it cannot set up itself.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check types lint imports format links spelling chart unit contract integration churn link-cut build image clean packages cluster-tools containerd root
MAKEFLAGS += --no-print-directory

export PATH := $(CURDIR)/node_modules/.bin:$(CURDIR)/tools/node_modules/.bin:$(PATH)
deps := node_modules/.package-lock.json
tools := tools/node_modules/.package-lock.json
site_packages := tools/site/node_modules/.package-lock.json
say = @echo "==> $(1)"
# Node's test runner waits for ever on a file that leaves something open: after so many minutes it is interrupted, and then
# names the file.
tests = timeout --foreground --signal=INT --kill-after=60 $(1)m node --test
# With real daemons under the tests: as many files side by side as the machine has room for; one that failed is run once more by itself.
beside = node tools/run-tests.ts $(1)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(deps) ## a cluster, a node run by graftlet, pods, kubectl (PROVIDER=docker, ssh or helm, KUBECONFIG=… joins yours, KEEP=1 leaves it up)
	$(call say,demo)
	@GRAFTLET_TEST_PROVIDER=$(or $(PROVIDER),cri) node test/cluster/demo.ts

.PHONY: demo-picture
demo-picture: $(deps) ## docs/pictures/demo.svg, from a run of make demo PROVIDER=helm
	$(call say,recording the demo)
	@node tools/record-demo.ts

# Each integration file runs with the providers that make a difference to it (test/matrix.ts); test-all leaves none out.
.PHONY: test-all
test test-all: ## everything: check, unit, contract, integration, a part of Kubernetes' own tests (test-all: integration with every provider)
	@started=$$SECONDS times=
	for part in "check unit" $(if $(filter test-all,$@),real-all,real); do
	  began=$$SECONDS
	  $(MAKE) $$([ "$$part" = "check unit" ] && echo --jobs=2 --output-sync=target) $$part
	  times+=" $${part/real/contract+integration+conformance-part} $$((SECONDS - began)) s,"
	done
	echo "==> make $@: all passed in $$((SECONDS - started)) s:$${times%,}"
.ONESHELL: test test-all unit real real-all api-versions clean

check: types lint imports streams programs format links spelling chart ## types, lint, import rules, programs for targets, format, the documents' links and spelling, the chart; no root

types: $(deps)
	$(call say,types)
	@tsc --noEmit -p .
	@tsc --noEmit -p src/page/browser

lint: $(deps) $(tools)
	$(call say,lint)
	@node tools/node_modules/oxlint/bin/oxlint --type-aware --deny-warnings --report-unused-disable-directives .

imports: $(deps)
	$(call say,import rules)
	@node tools/check-imports.ts

.PHONY: streams programs
streams: $(deps)
	$(call say,streams whose errors nobody hears)
	@node tools/check-streams.ts

format: $(deps) $(tools)
	$(call say,format (make format-write mends it))
	@node tools/node_modules/@biomejs/biome/bin/biome format .

# Programs that run on targets, in the languages that targets have.
programs: $(deps)
	$(call say,programs for targets (shellcheck; perl -c; pyflakes))
	@for program in shellcheck:shellcheck pyflakes3:pyflakes3; do command -v $${program%:*} >/dev/null || test/cluster/install-packages.sh $${program#*:}; done
	@git ls-files "src/*.sh" "providers/*.sh" | xargs shellcheck
	@git ls-files "src/*.py" "providers/*.py" | xargs pyflakes3
	@for program in $$(git ls-files "src/*.pl" "providers/*.pl"); do perl -c $$program 2>&1 | grep -v "syntax OK" && exit 1; done; true

links: $(deps)
	$(call say,links of the documents)
	@node --test --test-reporter=dot test/unit/documents/links.test.ts

# A word that is right and not known goes into tools/words.txt.
spelling: $(deps) $(tools)
	$(call say,spelling of the documents)
	@cspell lint --config tools/cspell.json --root . --no-progress --no-summary

chart: $(deps) chart-tools ## the chart by helm lint, kubeconform and promtool: its objects by the API server's schemas, its alerts; no root
	$(call say,chart)
	@$(call tests,10) --test-reporter=dot "test/chart/*.test.ts"

# Helm and kubeconform are built once per machine, from Go modules; promtool is the distribution's.
.PHONY: chart-tools
chart-tools: $(deps)
	@for module in helm kubeconform; do test/cluster/tools/build.sh --module $$module >/dev/null; done
	@command -v promtool >/dev/null || test/cluster/install-packages.sh prometheus

.PHONY: format-write
format-write: $(deps) $(tools)
	@node tools/node_modules/@biomejs/biome/bin/biome format --write .

# Files share four processes, as many tests wait: a process for each file would take three times the work.
unit: $(deps) $(site_packages) ## unit tests, in seconds; no root
	$(call say,unit tests)
	@command -v fish >/dev/null || test/cluster/install-packages.sh fish
	@folder=$$(mktemp -d)
	trap 'rm -rf "$$folder"' EXIT
	export NODE_COMPILE_CACHE=$$folder/compiled
	failed=
	for quarter in 1 2 3 4; do
	  $(call tests,10) --test-isolation=none --test-shard=$$quarter/4 --test-timeout=60000 "test/unit/**/*.test.ts" >$$folder/$$quarter 2>&1 &
	  echo $$! >$$folder/$$quarter.pid
	done
	for quarter in 1 2 3 4; do
	  wait $$(<$$folder/$$quarter.pid) || failed+=" $$quarter"
	  cat $$folder/$$quarter
	done
	[ -z "$$failed" ]

real_needs := $(deps) packages cluster-tools containerd
contract: $(real_needs) ## every Host and Runtime against the contract of its seam; root
	$(call say,contract tests)
	@$(call beside,contract)

integration: $(real_needs) ## features on a real cluster, with the providers that test/matrix.ts names (PROVIDER=docker: one of cri, cri-2.4, docker, docker-28, docker-29, ssh, ssh-docker, ssh-systemd, ssh-docker-systemd, ssh-guest, ssh-docker-guest; ONLY=logs: test/integration/logs*.test.ts; ALL=1: all); root
	$(call say,integration tests$(if $(ONLY), of $(ONLY))$(if $(PROVIDER), with $(PROVIDER)))
	@ONLY="$(ONLY)" PROVIDER="$(PROVIDER)" ALL="$(ALL)" $(call beside,integration)

.PHONY: test-more
test-more: $(real_needs) storage-tools crio build ## what make test leaves out for its time: faults, chaos, further providers (test/matrix.ts); continuous integration runs both
	$(call say,further integration tests)
	@$(call beside,more)

# Contract and integration tests and Kubernetes' own side by side.
.PHONY: real real-all
real real-all: $(real_needs) build
	$(call say,contract and integration tests and a part of Kubernetes' own)
	@node test/conformance/build.ts
	ALL=$(if $(filter real-all,$@),1) $(call beside,contract integration conformance-part)

.PHONY: api-versions
tour := node pods kubectl certificates
api-versions: $(deps) packages cluster-tools ## pods, streams and certificates on API servers of 1.34 and 1.35, built on the way (VERSIONS=1.35); root
	@for version in $(or $(VERSIONS),1.34 1.35); do
	  echo "==> Kubernetes $$version"
	  GRAFTLET_TEST_KUBERNETES=$$version $(call tests,60) --test-concurrency=1 --test-timeout=1800000 $(foreach name,$(tour),test/integration/$(name).test.ts)
	done

churn: $(deps) packages cluster-tools ## pods come and go on a Docker Engine, RATE=10 a second, FOR=180 seconds, and nothing of them is left; root
	$(call say,churn)
	@GRAFTLET_CHURN_RATE=$(or $(RATE),10) GRAFTLET_CHURN_SECONDS=$(or $(FOR),180) $(call tests,60) --test-timeout=3600000 test/integration/docker-churn.test.ts

link-cut: $(deps) packages cluster-tools ## the way to a target over SSH is cut for MINUTES=10, and no pod is lost; root
	$(call say,link-cut)
	@GRAFTLET_LINK_CUT_MINUTES=$(or $(MINUTES),10) $(call tests,120) --test-timeout=7200000 test/integration/ssh-cut.test.ts

.PHONY: fleet
fleet: $(deps) packages cluster-tools containerd ## three replicas share MACHINES=20 machines, and one fault after another befalls them FOR=30 minutes (SEED=1 draws the same; OTHER=../old: a fourth replica runs that checkout); root
	$(call say,replicas with faults)
	@GRAFTLET_FLEET_MINUTES=$(or $(FOR),30) GRAFTLET_FLEET_MACHINES=$(or $(MACHINES),20) $(if $(SEED),GRAFTLET_CHAOS_SEED=$(SEED)) $(if $(OTHER),GRAFTLET_FLEET_OTHER=$(abspath $(OTHER))) node --test --test-timeout=90000000 test/integration/fleet-faults.test.ts

.PHONY: fuzz
fuzz: $(deps) ## decoders of others' bytes get mutated samples FOR=10 minutes; prints the SEED, keeps what fails in dist/fuzz (SEED=1 draws the same inputs, TARGET=mountinfo fuzzes one); no root
	$(call say,fuzz)
	@FOR="$(FOR)" SEED="$(SEED)" TARGET="$(TARGET)" node test/fuzz/run.ts

.PHONY: machines
machines: $(deps) packages cluster-tools ## a tour of a node on machines of several systems, runtimes and SSH servers, written into docs/machines.md (ONLY="debian-13 sid/docker"; SUITES=all adds integration tests, SUITES=kubectl is one; what this source has done is skipped: AGAIN=1 repeats it); root
	$(call say,machines)
	@ONLY="$(ONLY)" SUITES="$(SUITES)" AGAIN="$(AGAIN)" node test/machines/matrix/run.ts

.PHONY: endure
endure: $(deps) packages cluster-tools ## one graftlet with ten nodes, whose targets turn hostile in turn for FOR=60 minutes: the others answer, and it grows by at most 32 MiB; root
	$(call say,endure)
	@FOR="$(or $(FOR),60)" node test/endure/endure.ts

.PHONY: faults
faults: $(deps) packages cluster-tools ## small mistakes, each made in a checkout of its own: the tests that should find it do (FAULT=name makes one; DRY=1 prints the changes); root
	$(call say,faults)
	@FAULT="$(FAULT)" DRY="$(DRY)" node test/faults/run.ts

.PHONY: chart-docs
chart-docs: $(deps) ## the table of values in the chart's README, from the comments of values.yaml
	@node tools/chart-docs.ts

.PHONY: krew
krew: $(deps) ## krew's manifest of a release, by the checksums of its tarballs (SUMS=FILE)
	@node tools/krew/manifest.ts $(SUMS)

.PHONY: bench
bench: $(deps) packages cluster-tools build ## how fast graftlet is beside the real kubelet, written into docs/performance.md (ONLY=start: two minutes; PROVIDER=docker or ssh; NODES=100 nodes in one process; PROVIDER=fleet machines that three replicas share); root
	$(call say,bench)
	@PROVIDER="$(PROVIDER)" ONLY="$(ONLY)" NODES="$(NODES)" node test/bench/bench.ts

.PHONY: profile
profile: $(deps) packages cluster-tools build ## where the time of a scenario goes: by process, call of the runtime and function, and what stays in the heap (SCENARIO=burst, delete, probes or restart; AGENT=kubelet); root
	$(call say,profile)
	@SCENARIO="$(SCENARIO)" AGENT="$(AGENT)" node test/bench/profile/profile.ts

# FOCUS, LIST, PROVIDER, NETWORK, AGENT and PART reach the program through the environment, as make passes on what its command line sets.
.PHONY: conformance conformance-part
conformance: $(deps) packages cluster-tools build ## Kubernetes' own tests on graftlet's node, the score written into docs/conformance.md (FOCUS=MirrorPod; LIST=FILE; PROVIDER=docker, ssh, ssh-guest, ssh-docker-guest or guest; NETWORK=tunneled over SSH; AGENT=kubelet; SCORE=1 for all other tests); root
	$(call say,conformance)
	@GRAFTLET_TEST_PROVIDER=$(or $(PROVIDER),cri) node test/conformance/$(if $(SCORE),score/)run.ts

conformance-part: $(deps) packages cluster-tools build ## a few of Kubernetes' own tests, of every area, in ten minutes; root
	$(call say,conformance: a part)
	@PART=1 node test/conformance/run.ts

build: $(deps) ## dist/graftlet.mjs: one self-contained file, with third-party notices
	$(call say,build)
	@node tools/build.ts

.PHONY: site
site: $(deps) $(site_packages) ## the documents as a static site in dist/site
	$(call say,site)
	@node tools/site/build.ts

image_args := $(foreach name,ARCH BUILD BASE LIBRARIES,$(if $($(name)),--build-arg $(name)=$($(name))))
image_tag = $(or $(TAG),graftlet/graftlet:$(shell sed -n 's/^  "version": "\(.*\)",$$/\1/p' package.json))
image: ## graftlet's container image by docker build (ARCH=arm64; BASE, BUILD, LIBRARIES: see Dockerfile; TAG=…)
	$(call say,image $(image_tag))
	@docker build $(image_args) --tag $(image_tag) .
	@docker save $(image_tag) | gzip -c | wc -c | awk '{ printf "$(image_tag): %.1f MiB compressed, its base included\n", $$1 / 2^20 }'

.PHONY: release-dry-run release release-sign release-page
release-dry-run: $(deps) packages ## a release of this checkout, into dist/release and a registry of its own, and installed from there; root
	$(call say,release: dry run)
	@node tools/release/dry-run.ts

release: $(deps) ## images, chart and files of a tagged commit, pushed (TAG, IMAGE, CHARTS, BUILDER: docs/releasing.md)
	$(call say,release)
	@node tools/release/main.ts publish

release-sign: $(deps) ## what make release pushed, signed by cosign without a key
	$(call say,release: signatures)
	@node tools/release/main.ts sign

release-page: $(deps) ## what make release made, on the project's page, by gh
	$(call say,release: page)
	@node tools/release/main.ts page

clean: ## remove what was built and installed here (the caches in ~/.cache/graftlet stay)
	$(call say,clean)
	@rm -rf dist node_modules tools/node_modules tools/site/node_modules

$(deps): package-lock.json
	$(call say,installing npm packages)
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js 18 or newer with npm (Debian: apt-get install npm), then run this again" >&2; exit 1; }
	@npm ci --loglevel=error
	@touch $@

$(tools): tools/package-lock.json
	$(call say,installing the checks)
	@npm install --prefix tools --no-save --ignore-scripts --loglevel=error
	@touch $@

$(site_packages): tools/site/package-lock.json
	$(call say,installing the site's generator)
	@npm ci --prefix tools/site --ignore-scripts --loglevel=error
	@touch $@

root:
	@[ "$$(id -u)" = 0 ] || { echo "make $(MAKECMDGOALS): root is needed for network namespaces, mounts and containers; run it with sudo or in a container of its own" >&2; exit 1; }

packages: root
	@test/cluster/install-packages.sh

cluster-tools: root
	@test/cluster/tools/build.sh >/dev/null
	@for module in helm coredns metrics-server csi egress prober actionlint krew; do test/cluster/tools/build.sh --module $$module >/dev/null; done

# What of others' only further tests run, in pods.
.PHONY: storage-tools
storage-tools: root
	@for module in csi-sidecars local-path-provisioner; do test/cluster/tools/build.sh --module $$module >/dev/null; done

# Builds CRI-O, which a machine of the tours has as its runtime.
.PHONY: crio
crio: root
	@test/cluster/tools/build.sh --module crio >/dev/null

# The containerd that is not Debian's.
containerd: root
	@test/cluster/tools/build.sh --module containerd >/dev/null
