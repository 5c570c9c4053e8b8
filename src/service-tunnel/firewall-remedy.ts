import { networkRoutes, contains } from "../host/addresses.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import { script } from "../seams/command.ts";
import type { Host } from "../seams/host.ts";
import type { Protocol } from "./gate.ts";

/** Firewalls with their own configuration, in which a rule has to be to last. */
const firewalls = ["ufw", "firewalld"] as const;
type Firewall = (typeof firewalls)[number];

/** Prints the names of the active firewalls. */
const printFirewalls = String.raw`
if command -v ufw >/dev/null && grep -qsi '^ENABLED=yes' /etc/ufw/ufw.conf; then echo ufw; fi
if systemctl is-active --quiet firewalld 2>/dev/null || [ "$(firewall-cmd --state 2>/dev/null)" = running ]; then echo firewalld; fi`;

/** Returns the active firewalls of the target. @throws unavailable when the target is unreachable. */
export async function activeFirewalls({ run }: Pick<Host, "run">, signal: AbortSignal): Promise<readonly Firewall[]> {
  const ran = await ignoreNotFound(run(script(printFirewalls), { maxOutputBytes: 1024, signal }));
  const lines = ran?.stdout.split("\n") ?? [];
  return firewalls.filter((firewall) => lines.includes(firewall));
}

/** Describes the firewall that blocks a pod, with the commands that open it, as a sentence for users.
 *  @param pod its address. @throws the target's error. */
export async function describeFirewall(
  host: { readonly run: Host["run"]; readonly fs: Pick<Host["fs"], "readFile"> },
  pod: string,
  blocked: readonly Protocol[],
  signal: AbortSignal,
): Promise<string> {
  const [active, routes] = await Promise.all([
    activeFirewalls(host, signal),
    host.fs.readFile("/proc/net/route", { signal }),
  ]);
  return firewallText(active, podInterface(routes.toString("latin1"), pod), blocked);
}

/** Returns the interface of the target that leads to all pods, such as a bridge; undefined if each pod has its own, or if the name is not
 *  one that a shell takes literally. Pure. @param routes the target's /proc/net/route. */
export function podInterface(routes: string, pod: string): string | undefined {
  const [route] = networkRoutes(routes)
    .filter(({ destination, mask }) => mask !== 0 && contains({ network: destination, mask }, pod))
    .sort((one, other) => other.mask - one.mask);
  const isOfAllPods = route !== undefined && route.mask !== 0xff_ff_ff_ff;
  return isOfAllPods && /^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$/.test(route.name) ? route.name : undefined;
}

/** The message for a firewall that blocks pods. Pure. @param device the pods' interface; undefined if each pod has its own. */
export function firewallText(
  active: readonly Firewall[],
  device: string | undefined,
  blocked: readonly Protocol[],
): string {
  const who = active.length > 0 ? active.join(" and ") : "a packet filter (nft list ruleset)";
  const what = blocked.map((protocol) => protocol.toUpperCase()).join(" and ");
  const commands = active.length > 0 ? active.map((firewall) => remedies[firewall](device)) : [filterRemedy(device)];
  const network = device === undefined ? ", where PODS is the network of the machine's pods, such as 10.88.0.0/16" : "";
  return `${who} on the target blocks ${what} from pods to the machine's ports 600 to 1023, so pods do not reach Services or the cluster's DNS. On the target, run: ${commands.join("; ")}${network}`;
}

const remedies: Readonly<Record<Firewall, (device: string | undefined) => string>> = {
  ufw: (device) => `ufw allow ${device === undefined ? "from PODS" : `in on ${device}`}`,
  firewalld(device) {
    const member = device === undefined ? "--add-source=PODS" : `--change-interface=${device}`;
    return `firewall-cmd --permanent --zone=trusted ${member} && firewall-cmd --reload`;
  },
};

function filterRemedy(device: string | undefined): string {
  return `iptables -I INPUT ${device === undefined ? "-s PODS" : `-i ${device}`} -j ACCEPT (and add this rule to the filter's own configuration)`;
}
