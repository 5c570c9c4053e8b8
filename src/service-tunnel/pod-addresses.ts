import { isIP, isIPv4, isIPv6 } from "node:net";
import { NamespaceMode, type PodSandboxStatus } from "../gen/cri.ts";
import type { RuntimePod } from "../pipeline.ts";
import { readySandboxIPs } from "../pod/sandbox.ts";
import type { Column } from "../state/records.ts";
import { createSignal } from "../lib/signal.ts";

/** Tracks the addresses of this node's pods: those in the pod cache, with corrections for changes that have not been observed
 *  yet. */
export function createPodAddresses(seen: Column<RuntimePod>) {
  /** Addresses that are newer than the pod cache, by UID. */
  const pending = new Map<string, readonly string[]>();
  const changed = createSignal();
  seen.onChange((uid) => {
    const newer = pending.get(uid);
    if (newer && ofIPv4(podNetworkAddresses(seen.get(uid))).join() === ofIPv4(newer).join()) pending.delete(uid);
    changed.send();
  });
  const note = (uid: string, addresses: readonly string[]) => {
    pending.set(uid, addresses);
    changed.send();
  };
  const all = () => {
    const old = seen.entries().flatMap(([uid, pod]) => (pending.has(uid) ? [] : podNetworkAddresses(pod)));
    return [...new Set([...old, ...[...pending.values()].flat()])].sort();
  };
  return {
    /** IPv4 addresses, sorted; those of pods on the target's host network are omitted. */
    list: () => ofIPv4(all()),
    /** IPv6 addresses, sorted. */
    listIPv6: () => all().filter((address) => isIPv6(address)),
    /** IPv4 addresses that an interface in a network namespace has: of observed pods whose containers run on the target's kernel, not
     *  in virtual machines as other runtime handlers may run them. */
    inNamespaces: () =>
      ofIPv4(
        seen.entries().flatMap(([uid, pod]) => (pending.has(uid) ? [] : podNetworkAddresses(pod, onTargetKernel))),
      ),
    /** Adds the addresses of a pod's new sandbox before it is observed. */
    add: (uid: string, addresses: readonly string[]) =>
      note(
        uid,
        addresses.filter((address) => isIP(address) > 0),
      ),
    /** Removes a pod's addresses before its sandboxes are stopped, as other pods may get them. */
    remove: (uid: string) => note(uid, []),
    /** Calls the listener when the list may have changed. @returns removes the listener. */
    onChange: changed.subscribe,
  };
}

function ofIPv4(addresses: readonly string[]): readonly string[] {
  return addresses.filter((address) => isIPv4(address));
}

const onTargetKernel = ({ runtimeHandler }: PodSandboxStatus) => runtimeHandler === "";

function podNetworkAddresses(
  pod: RuntimePod | undefined,
  counts: (sandbox: PodSandboxStatus) => boolean = () => true,
): readonly string[] {
  const own = pod?.sandboxes.filter(({ linux }) => linux?.namespaces?.options?.network !== NamespaceMode.NODE) ?? [];
  return own
    .filter(counts)
    .flatMap(readySandboxIPs)
    .filter((ip) => isIP(ip) > 0);
}
