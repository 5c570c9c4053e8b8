#!/usr/bin/env bash
# Builds the pinned cluster tools (go.mod beside this file) into a cache folder keyed by
# the hash of go.mod and go.sum, and prints that folder as its only line of standard output.
# Usage: build.sh [NAME…]   (all tools when no name is given)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"

command -v go >/dev/null || { echo "build.sh: the Go toolchain (1.26 or newer) is missing: install it from go.dev or your distribution, then run this again" >&2; exit 1; }

key=$(cat go.mod go.sum | sha256sum | cut -c1-16)
out=${GRAFTLET_TOOLS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/graftlet/tools}/$key
mkdir -p "$out"

version=$(go list -m -f "{{.Version}}" k8s.io/kubernetes)
minor=${version#v1.}; minor=${minor%%.*}
flags="-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor"
for package in client-go/pkg; do flags="$flags -X k8s.io/$package/version.gitVersion=$version -X k8s.io/$package/version.gitMajor=1 -X k8s.io/$package/version.gitMinor=$minor"; done

mapfile -t tools < <(awk '/^tool \(/ { on = 1; next } /^\)/ { on = 0 } on { print $1 }' go.mod)
for tool in "${tools[@]}"; do
  name=${tool##*/}
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  [ -x "$out/$name" ] && continue
  started=$SECONDS
  echo "building $name $version (once per machine; kube-apiserver takes about six minutes on two cores)" >&2
  CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "$out/.$name.$$" "$tool"
  mv "$out/.$name.$$" "$out/$name"
  echo "built $name in $((SECONDS - started)) s" >&2
done
echo "$out"
