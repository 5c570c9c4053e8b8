import type { Logger } from "../lib/log.ts";
import { type Runnable, onceThenIdle } from "../lib/runnables.ts";
import type { Host } from "../seams/host.ts";
import { ownedTunnelResources } from "./rules.ts";

export interface LeftoversDeps {
  readonly host: Host;
  readonly rootDir: string;
  readonly log: Logger;
}

/** Removes firewall rules of an earlier service tunnel: they would reject the pods' packets to cluster IPs. */
export function removeTunnelLeftovers({ host, rootDir, log }: LeftoversDeps): Runnable {
  return onceThenIdle("service tunnel cleanup", async (signal) => {
    try {
      for (const resource of await ownedTunnelResources(host, rootDir, signal)) await resource.remove(signal);
    } catch (err) {
      if (!signal.aborted) log.debug({ err }, "cannot remove leftovers of an earlier service tunnel");
    }
  });
}
