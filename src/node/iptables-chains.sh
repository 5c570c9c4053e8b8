# shellcheck shell=sh
# Usage: ensure|find|remove iptables|ip6tables. The kubelet's chains: KUBE-IPTABLES-HINT tells other programs whether the
# machine uses iptables-legacy or iptables-nft, KUBE-FIREWALL drops packets from other machines to loopback addresses, and
# KUBE-KUBELET-CANARY disappears when something flushes the tables. Prints the program if it created chains (ensure), or if they
# exist (find).
set -eu
tables() { "$program" -w 5 -t "$@"; }
has() { tables "$1" -S "$2" >/dev/null 2>&1; }
chain() { has "$1" "$2" || tables "$1" -N "$2"; }
rule() {
  operation=$1; shift
  tables filter -C "$@" >/dev/null 2>&1 || tables filter "$operation" "$@"
}
ensure() {
  if has mangle KUBE-KUBELET-CANARY; then return; fi
  chain mangle KUBE-IPTABLES-HINT
  if [ "$program" = iptables ]; then
    chain filter KUBE-FIREWALL
    rule -I OUTPUT -j KUBE-FIREWALL
    rule -I INPUT -j KUBE-FIREWALL
    rule -A KUBE-FIREWALL -m comment --comment "block incoming localnet connections" --dst 127.0.0.0/8 ! --src 127.0.0.0/8 \
      -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
  fi
  for table in filter nat mangle; do chain $table KUBE-KUBELET-CANARY; done
  echo "$program"
}
find() { if has mangle KUBE-IPTABLES-HINT; then echo "$program"; fi; }
remove() {
  if has filter KUBE-FIREWALL; then
    for from in INPUT OUTPUT; do
      if tables filter -C $from -j KUBE-FIREWALL 2>/dev/null; then tables filter -D $from -j KUBE-FIREWALL; fi
    done
    tables filter -F KUBE-FIREWALL
    tables filter -X KUBE-FIREWALL
  fi
  for table in filter nat mangle; do
    if has $table KUBE-KUBELET-CANARY; then tables $table -X KUBE-KUBELET-CANARY; fi
  done
  if has mangle KUBE-IPTABLES-HINT; then tables mangle -X KUBE-IPTABLES-HINT; fi
}
action=$1 program=$2
if command -v "$program" >/dev/null 2>&1; then "$action"; fi
