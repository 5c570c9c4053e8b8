#!/usr/bin/env bash
# Builds the pinned cluster tools (go.mod beside this file) into a cache folder keyed by
# the hash of go.mod, go.sum and what programs lie beside them, and prints that folder as its only line of standard output.
# Usage: build.sh [--module FOLDER] [NAME…]    build those that lack (all tools when no name is given)
#        build.sh [--module FOLDER] --folder   build nothing, only say where the tools lie
# FOLDER is a folder beside this file with a go.mod of its own, such as kubernetes-1.35.
# Of Kubernetes' two test suites, which are no programs, the tests are built: e2e.test and e2e_node.test.
set -euo pipefail
cd "$(dirname "$0")"
if [ "${1:-}" = --module ]; then cd "$2"; shift 2; fi

key=$(cat go.mod go.sum $(find . -maxdepth 1 -name '*.go') | sha256sum | cut -c1-16)
out=${GRAFTLET_TOOLS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/graftlet/tools}/$key
if [ "${1:-}" = --folder ]; then echo "$out"; exit 0; fi

command -v go >/dev/null || { echo "build.sh: the Go toolchain (1.26 or newer) is missing: install it from go.dev or your distribution, then run this again" >&2; exit 1; }
mkdir -p "$out"
exec 9>"$out/.lock"
flock --nonblock 9 || { echo "another build of the cluster tools is running: waiting for it" >&2; flock 9; }

mapfile -t tools < <(awk '/^tool \(/ { on = 1; next } /^\)/ { on = 0 } on { print $1 } /^tool [^(]/ { print $2 }' go.mod)
flags="-s -w"
case ${tools[0]} in
  helm.sh/helm/v4/*)
    version=$(go list -m -f "{{.Version}}" helm.sh/helm/v4)
    flags="$flags -X helm.sh/helm/v4/internal/version.version=$version" ;;
  github.com/containerd/containerd/v2/*)
    version=$(go list -m -f "{{.Version}}" github.com/containerd/containerd/v2)
    flags="$flags -X github.com/containerd/containerd/v2/version.Version=$version" ;;
  */coredns)
    version=$(go list -m -f "{{.Version}}" github.com/coredns/coredns) ;;
  sigs.k8s.io/metrics-server/*)
    version=$(go list -m -f "{{.Version}}" sigs.k8s.io/metrics-server)
    flags="$flags -X sigs.k8s.io/metrics-server/pkg/version.gitVersion=$version" ;;
  *)
    version=$(go list -m -f "{{.Version}}" k8s.io/kubernetes)
    minor=${version#v1.}; minor=${minor%%.*}
    for package in component-base/version client-go/pkg/version; do
      flags="$flags -X k8s.io/$package.gitVersion=$version -X k8s.io/$package.gitMajor=1 -X k8s.io/$package.gitMinor=$minor"
    done ;;
esac

for tool in "${tools[@]}"; do
  name=${tool##*/} build=build
  case $tool in */test/e2e | */test/e2e_node) name=$name.test build="test -c" ;; esac
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  [ -x "$out/$name" ] && continue
  started=$SECONDS
  echo "building $name $version (once per machine; the largest takes six minutes on two cores)" >&2
  CGO_ENABLED=0 go $build -trimpath -ldflags "$flags" -o "$out/.$name.partial" "$tool"
  mv "$out/.$name.partial" "$out/$name"
  echo "built $name in $((SECONDS - started)) s" >&2
done
echo "$out"
