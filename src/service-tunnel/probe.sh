# shellcheck shell=sh
# Connects to the service tunnel from a pod; src/service-tunnel/firewall-probe.ts describes arguments and output.
table=$1 pod=$2 python=$3 perl=$4
shift 4
own=$(readlink /proc/self/ns/net)
namespace=
tables=$(grep -ls -e "-- $pod\$" /proc/[0-9]*/net/fib_trie)
for addresses in $tables; do
  process=${addresses%/net/fib_trie}
  if [ "$(readlink "$process/ns/net")" != "$own" ]; then namespace=$process/ns/net; break; fi
done
[ -n "$namespace" ] || exit 0
counted() { nft list chain ip "$table" input | grep "$1 dport .* counter"; }
tcp=$(counted tcp) udp=$(counted udp)
if command -v python3 >/dev/null; then
  nsenter --net="$namespace" -- python3 -c "$python" "$@"
else
  nsenter --net="$namespace" -- perl -e "$perl" -- "$@"
fi
[ "$tcp" = "$(counted tcp)" ] || echo tcp arrived
[ "$udp" = "$(counted udp)" ] || echo udp arrived
