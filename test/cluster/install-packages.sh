#!/usr/bin/env bash
# Installs the Debian packages that the test cluster runs on, or those that are named. Does nothing when all are there.
# None of their services is started: the cluster runs programs of its own, in namespaces of its own.
set -euo pipefail
packages=(
  containerd runc docker.io containernetworking-plugins etcd-server docker-registry
  busybox-static bash iproute2 iptables conntrack openssl perl-base util-linux
  curl bind9-dnsutils netcat-openbsd iperf socat mmdebstrap
  openssh-server openssh-client dropbear-bin microsocks tinyproxy-bin nftables sudo inotify-tools procps tcsh fish ncat locales
  chromium skopeo prometheus qemu-system-x86 qemu-utils e2fsprogs xfsprogs sshfs dbus-daemon systemd
  gcc libc6-dev libseccomp-dev pkg-config
)
[ $# = 0 ] || packages=("$@")
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

command -v apt-get >/dev/null || { echo "install-packages.sh: these programs are missing and this is not a Debian: ${missing[*]}" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "install-packages.sh: root is needed to install: ${missing[*]}" >&2; exit 1; }
echo "installing Debian packages: ${missing[*]}" >&2

# Two targets of one make may install at the same time.
exec {lock}>/run/lock/graftlet-install-packages
flock "$lock"
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
  apt-get update >/dev/null
  apt-get install -y --no-install-recommends "${missing[@]}" >&2
}
