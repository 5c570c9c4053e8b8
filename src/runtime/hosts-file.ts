import { isIPv4 } from "node:net";
import { podHostsFile, hostNetworkHostsFile, podHostname } from "../pod/hostname.ts";
import type { Pod } from "../objects.ts";
import type { HostFs } from "../seams/host.ts";
import type { ReadySandbox } from "./start-container.ts";

export interface HostsFilesDeps {
  readonly fs: Pick<HostFs, "readFile">;
  readonly clusterDomain: () => string;
}

export type HostsFiles = ReturnType<typeof createHostsFiles>;

/** Content of pods' hosts files. A pod's addresses are known only once its sandbox runs, and writing them then takes a round trip to a
 *  remote target. Most networks assign addresses one after another, so the file is written ahead with the next one; it is corrected if the
 *  guess was wrong. */
export function createHostsFiles({ fs, clusterDomain }: HostsFilesDeps) {
  const guesses = new WeakMap<Pod, readonly string[]>();
  /** Addresses of the newest sandbox. */
  let last: readonly string[] = [];
  /** Number of pods whose addresses are not known yet. */
  let pending = 0;
  const content = (pod: Pod, ips: readonly string[]) => podHostsFile(pod, ips, podHostname(pod, clusterDomain()));
  const learn = (pod: Pod, ips: readonly string[]) => {
    const guess = guesses.get(pod);
    // A restarted container is in an older sandbox.
    if (!guess) return;
    last = ips;
    guesses.delete(pod);
    pending = guess.join() === ips.join() ? pending - 1 : 0;
  };
  return {
    /** The expected content for a pod that gets a new sandbox; empty if there is no expectation. */
    expected(pod: Pod): string {
      if (pod.spec.hostNetwork) return "";
      const known = guesses.get(pod);
      if (!known) pending += 1;
      const guess = known ?? last.flatMap((ip) => addressAfter(ip, pending) ?? []);
      guesses.set(pod, guess);
      return guess.length === 0 ? "" : content(pod, guess);
    },
    /** The content; undefined for a pod without addresses, whose hosts file is the runtime's. */
    async of(pod: Pod, sandbox: Pick<ReadySandbox, "ips">, signal: AbortSignal): Promise<string | undefined> {
      if (pod.spec.hostNetwork)
        return hostNetworkHostsFile(pod, (await fs.readFile("/etc/hosts", { signal })).toString());
      const ips = await sandbox.ips;
      learn(pod, ips);
      return ips.length === 0 ? undefined : content(pod, ips);
    },
  };
}

/** The address so many after another one; undefined if the last part of the address overflows. Pure. */
export function addressAfter(ip: string, count: number): string | undefined {
  const [separator, base, digits] = isIPv4(ip) ? ([".", 10, 3] as const) : ([":", 16, 4] as const);
  const at = ip.lastIndexOf(separator) + 1;
  const next = (Number.parseInt(ip.slice(at) || "0", base) + count).toString(base);
  return next.length > digits || (base === 10 && Number(next) > 255) ? undefined : ip.slice(0, at) + next;
}
