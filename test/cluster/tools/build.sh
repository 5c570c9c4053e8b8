#!/usr/bin/env bash
# Builds the pinned cluster tools (go.mod beside this file) into a cache folder keyed by
# the hash of go.mod, go.sum and what programs lie beside them, and prints that folder as its only line of standard output.
# Usage: build.sh [--module FOLDER] [NAME…]    build those that lack (all tools when no name is given)
#        build.sh [--module FOLDER] --folder   build nothing, only say where the tools lie
# FOLDER is a folder beside this file with a go.mod of its own, such as kubernetes-1.35.
# Of Kubernetes' two test suites, which are no programs, the tests are built: e2e.test and e2e_node.test.
# Where nothing lacks, no other build of the module is waited for.
set -euo pipefail
cd "$(dirname "$0")"
# What lies in folders below this one belongs to other modules.
depth=1
if [ "${1:-}" = --module ]; then cd "$2"; [ "$2" = . ] || depth=9; shift 2; fi

key=$(cat go.mod go.sum $(find . -maxdepth $depth -name '*.go' | sort) | sha256sum | cut -c1-16)
out=${GRAFTLET_TOOLS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/graftlet/tools}/$key
if [ "${1:-}" = --folder ]; then echo "$out"; exit 0; fi

mapfile -t tools < <(awk '/^tool \(/ { on = 1; next } /^\)/ { on = 0 } on { print $1 } /^tool [^(]/ { print $2 }' go.mod)
wanted=" $* "
name_of() { case $1 in */test/e2e | */test/e2e_node) echo "${1##*/}.test" ;; *) echo "${1##*/}" ;; esac; }
# Sets `programs` and `suites` to the packages of what is wanted and not there.
find_lacking() {
  programs=() suites=()
  for tool in "${tools[@]}"; do
    name=$(name_of "$tool")
    if [[ $wanted != *[^\ ]* || $wanted == *" $name "* ]] && [ ! -x "$out/$name" ]; then
      if [[ $name == *.test ]]; then suites+=("$tool"); else programs+=("$tool"); fi
    fi
  done
  [ $((${#programs[@]} + ${#suites[@]})) -gt 0 ]
}
find_lacking || { echo "$out"; exit 0; }

command -v go >/dev/null || { echo "build.sh: the Go toolchain (1.26 or newer) is missing: install it from go.dev or your distribution, then run this again" >&2; exit 1; }
mkdir -p "$out"
exec 9>"$out/.lock"
flock --nonblock 9 || { echo "another build of these tools is running: waiting for it" >&2; flock 9; }
find_lacking || { echo "$out"; exit 0; }

work=$(mktemp -d "$out/.partial.XXXXXX")
watcher=
trap '[ -z "$watcher" ] || kill "$watcher" 2>/dev/null; rm -rf "$work"' EXIT
# Runs a long go command, and says every half minute how far it is: go names each module and each package in a line.
go_visibly() { # UNIT TOTAL COMMAND…
  local unit=$1 total=$2 started=$SECONDS code=0
  shift 2
  : >"$work/log"
  (
    exec {never}<> <(:)
    while ! read -rt 30 -u "$never"; do
      echo "    $(grep -cE '^(go: downloading |[^ #]+$)' "$work/log")$total $unit, $((SECONDS - started)) s" >&2
    done
  ) 9>&- &
  watcher=$!
  "$@" 2>"$work/log" || code=$?
  kill "$watcher" 2>/dev/null && wait "$watcher" 2>/dev/null || true
  watcher=
  [ "$code" = 0 ] || grep -vE '^(go: downloading .*|[^ #:]+)$' "$work/log" >&2 || true
  return "$code"
}

export CGO_ENABLED=0
tags=
# runc starts containers in C, and confines them by libseccomp.
case ${tools[0]} in
  github.com/opencontainers/runc) CGO_ENABLED=1 tags=seccomp ;;
  github.com/cri-o/cri-o/*) CGO_ENABLED=1 tags=seccomp,containers_image_openpgp,containers_image_ostree_stub,exclude_graphdriver_btrfs ;;
esac
go_visibly "modules downloaded" "" go list -deps -f '{{.ImportPath}}' "${programs[@]}" "${suites[@]}" >"$work/packages"

flags="-s -w"
case ${tools[0]} in
  helm.sh/helm/v4/*)
    version=$(go list -m -f "{{.Version}}" helm.sh/helm/v4)
    flags="$flags -X helm.sh/helm/v4/internal/version.version=$version" ;;
  github.com/containerd/containerd/v2/*)
    version=$(go list -m -f "{{.Version}}" github.com/containerd/containerd/v2)
    flags="$flags -X github.com/containerd/containerd/v2/version.Version=$version" ;;
  github.com/docker/docker/*)
    version=$(go list -m -f "{{.Version}}" github.com/docker/docker)
    version=${version%+incompatible}
    flags="$flags -X github.com/docker/docker/dockerversion.Version=${version#v}" ;;
  github.com/moby/moby/v2/*)
    # Its own numbers are the module's: those of the engine are in a file of the releases.
    version=$(awk '/^docker:/ { on = 1 } on && /next:/ { gsub(/"/, ""); print $2 "-dev"; exit }' \
      "$(go list -m -f "{{.Dir}}" github.com/moby/moby/v2)/releases/versions.yaml")
    flags="$flags -X github.com/moby/moby/v2/dockerversion.Version=$version" ;;
  github.com/cri-o/cri-o/*)
    version=$(go list -m -f "{{.Version}}" github.com/cri-o/cri-o)
    # What pins a pod's namespaces is a program in C.
    cc -O2 -o "$out/pinns" "$(go list -m -f "{{.Dir}}" github.com/cri-o/cri-o)"/pinns/src/*.c ;;
  gvisor.dev/gvisor/*)
    version=$(go list -m -f "{{.Version}}" gvisor.dev/gvisor)
    # Its shim starts nothing where it may not lower its own OOM score, for which a process needs CAP_SYS_RESOURCE.
    cp -r --no-preserve=mode "$(go list -m -f "{{.Dir}}" gvisor.dev/gvisor)" "$work/gvisor"
    sed -i 's/sys.SetOOMScore(cmd.Process.Pid, oomScoreMax)/sys.SetOOMScore(cmd.Process.Pid, 0)/' "$work/gvisor/pkg/shim/v1/manager.go"
    cp go.mod go.sum "$work"
    go mod edit -replace "gvisor.dev/gvisor=$work/gvisor" "$work/go.mod"
    export GOFLAGS="-modfile=$work/go.mod" ;;
  github.com/opencontainers/runc)
    version=$(go list -m -f "{{.Version}}" github.com/opencontainers/runc) ;;
  */coredns)
    version=$(go list -m -f "{{.Version}}" github.com/coredns/coredns) ;;
  sigs.k8s.io/metrics-server/*)
    version=$(go list -m -f "{{.Version}}" sigs.k8s.io/metrics-server)
    flags="$flags -X sigs.k8s.io/metrics-server/pkg/version.gitVersion=$version" ;;
  github.com/kubernetes-csi/csi-test/v5/*)
    version=$(go list -m -f "with csi-test {{.Version}}" github.com/kubernetes-csi/csi-test/v5) ;;
  github.com/kubernetes-csi/external-attacher/v4/*)
    version=$(go list -m -f "with csi-lib-utils {{.Version}}" github.com/kubernetes-csi/csi-lib-utils) ;;
  github.com/rhysd/actionlint/*)
    version=$(go list -m -f "{{.Version}}" github.com/rhysd/actionlint) ;;
  sigs.k8s.io/krew/*)
    version=$(go list -m -f "{{.Version}}" sigs.k8s.io/krew) ;;
  github.com/yannh/kubeconform/*)
    version=$(go list -m -f "{{.Version}}" github.com/yannh/kubeconform) ;;
  github.com/rancher/local-path-provisioner)
    version=$(go list -m -f "{{.Version}}" github.com/rancher/local-path-provisioner) ;;
  */nfs-provisioner)
    version=$(go list -m -f "with sig-storage-lib-external-provisioner {{.Version}}" sigs.k8s.io/sig-storage-lib-external-provisioner/v13) ;;
  */egress-server)
    version=$(go list -m -f "with remotedialer {{.Version}}" github.com/rancher/remotedialer) ;;
  */dra-driver)
    version=$(go list -m -f "with dynamic-resource-allocation {{.Version}}" k8s.io/dynamic-resource-allocation) ;;
  *)
    version=$(go list -m -f "{{.Version}}" k8s.io/kubernetes)
    minor=${version#v1.}; minor=${minor%%.*}
    for package in component-base/version client-go/pkg/version; do
      flags="$flags -X k8s.io/$package.gitVersion=$version -X k8s.io/$package.gitMajor=1 -X k8s.io/$package.gitMinor=$minor"
    done ;;
esac

# All programs by one command: while one is linked, or waits for a large package, the others' packages are compiled.
build() { # "build" or "test -c", TOTAL, PACKAGE…
  local how=$1 total=$2 started=$SECONDS names=
  shift 2
  for tool in "$@"; do names="$names $(name_of "$tool")"; done
  echo "building$names $version (once per machine)" >&2
  mkdir "$work/built"
  go_visibly "packages compiled" "$total" go $how -v -trimpath -tags "$tags" -ldflags "$flags" -o "$work/built/" "$@"
  mv "$work/built/"* "$out/"
  rmdir "$work/built"
  echo "built$names in $((SECONDS - started)) s" >&2
}
[ ${#programs[@]} = 0 ] || build build " of at most $(wc -l <"$work/packages")" "${programs[@]}"
# The test suites are large: each by itself, lest two are linked at once.
for suite in "${suites[@]}"; do build "test -c" "" "$suite"; done
echo "$out"
