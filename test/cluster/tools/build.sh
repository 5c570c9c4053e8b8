#!/usr/bin/env bash
# Builds the pinned cluster tools (go.mod beside this file) into a cache folder keyed by
# the hash of go.mod and go.sum, and prints that folder as its only line of standard output.
# Usage: build.sh [NAME…]    build those that lack (all tools when no name is given)
#        build.sh --folder   build nothing, only say where the tools lie
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"

key=$(cat go.mod go.sum | sha256sum | cut -c1-16)
out=${GRAFTLET_TOOLS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/graftlet/tools}/$key
if [ "${1:-}" = --folder ]; then echo "$out"; exit 0; fi

command -v go >/dev/null || { echo "build.sh: the Go toolchain (1.26 or newer) is missing: install it from go.dev or your distribution, then run this again" >&2; exit 1; }
mkdir -p "$out"
exec 9>"$out/.lock"
flock --nonblock 9 || { echo "another build of the cluster tools is running: waiting for it" >&2; flock 9; }

version=$(go list -m -f "{{.Version}}" k8s.io/kubernetes)
minor=${version#v1.}; minor=${minor%%.*}
flags="-s -w"
for package in component-base/version client-go/pkg/version; do
  flags="$flags -X k8s.io/$package.gitVersion=$version -X k8s.io/$package.gitMajor=1 -X k8s.io/$package.gitMinor=$minor"
done

mapfile -t tools < <(awk '/^tool \(/ { on = 1; next } /^\)/ { on = 0 } on { print $1 }' go.mod)
for tool in "${tools[@]}"; do
  name=${tool##*/}
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  [ -x "$out/$name" ] && continue
  started=$SECONDS
  echo "building $name $version (once per machine; kube-apiserver takes about six minutes on two cores)" >&2
  CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "$out/.$name.partial" "$tool"
  mv "$out/.$name.partial" "$out/$name"
  echo "built $name in $((SECONDS - started)) s" >&2
done
echo "$out"
