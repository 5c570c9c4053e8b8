import { isIP, isIPv4, isIPv6 } from "node:net";
import { NamespaceMode } from "../gen/cri.ts";
import type { RuntimePod } from "../pipeline.ts";
import { readySandboxIPs } from "../pod/sandbox.ts";
import type { Column } from "../state/rows.ts";
import { createSignal } from "../state/signals.ts";

/** Addresses of this node's pods: what the runtime was last seen to have, and what is known to have come or gone since. */
export interface PodAddresses {
  /** Those of IPv4, sorted; those on the target's own network are not among them. */
  list(): readonly string[];
  /** Those of IPv6, sorted. */
  listIPv6(): readonly string[];
  /** A sandbox of the pod has these addresses now, which has not been seen yet. */
  joined(uid: string, addresses: readonly string[]): void;
  /** The pod's sandboxes are about to be stopped: their addresses may become others'. */
  left(uid: string): void;
  /** Calls back when the list may be another. @returns ends the calls. */
  onChange(hear: () => void): () => void;
}

/** Follows the addresses of the pods that are seen. */
export function createPodAddresses(seen: Column<RuntimePod>): PodAddresses {
  /** Addresses that are newer than what has been seen, by UID. */
  const news = new Map<string, readonly string[]>();
  const changed = createSignal();
  seen.onChange((uid) => {
    const newer = news.get(uid);
    if (newer && ofIPv4(addressesOf(seen.get(uid))).join() === ofIPv4(newer).join()) news.delete(uid);
    changed.send();
  });
  const note = (uid: string, addresses: readonly string[]) => {
    news.set(uid, addresses);
    changed.send();
  };
  const all = () => {
    const old = seen.entries().flatMap(([uid, pod]) => (news.has(uid) ? [] : addressesOf(pod)));
    return [...new Set([...old, ...[...news.values()].flat()])].sort();
  };
  return {
    list: () => ofIPv4(all()),
    listIPv6: () => all().filter((address) => isIPv6(address)),
    joined: (uid, addresses) =>
      note(
        uid,
        addresses.filter((address) => isIP(address) > 0),
      ),
    left: (uid) => note(uid, []),
    onChange: changed.heard,
  };
}

function ofIPv4(addresses: readonly string[]): readonly string[] {
  return addresses.filter((address) => isIPv4(address));
}

function addressesOf(pod: RuntimePod | undefined): readonly string[] {
  const own = pod?.sandboxes.filter(({ linux }) => linux?.namespaces?.options?.network !== NamespaceMode.NODE) ?? [];
  return own.flatMap(readySandboxIPs).filter((ip) => isIP(ip) > 0);
}
