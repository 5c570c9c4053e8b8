import { podsApiDirectoryOf, podsApiSocket } from "../host/layout.ts";
import { serveSocket } from "../host/socket-server.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { Host } from "../seams/host.ts";
import { type PodsServerDeps, createPodsServer } from "./server.ts";

export interface PodsApiDeps extends Omit<PodsServerDeps, "encode" | "budget" | "clock">, ClockAndLog {
  readonly host: Pick<Host, "fs" | "listen" | "budget">;
  /** The kubelet's root directory on the target. */
  readonly rootDir: string;
}

/** Serves the Pods API on a socket below the root directory. */
export function createPodsApi(deps: PodsApiDeps): Runnable {
  const { host, rootDir, clock, log } = deps;
  const directory = podsApiDirectoryOf(rootDir);
  const socket = `${directory}/${podsApiSocket}`;
  const changes = [
    { kind: "mkdir", path: directory, mode: 0o750, parents: true },
    { kind: "remove", path: socket },
  ] as const;
  return {
    name: "pods-api",
    async run(signal) {
      const { createPodEncoder } = await import("./encode-pod.ts");
      const server = createPodsServer({ ...deps, encode: createPodEncoder(), budget: host.budget });
      const prepare = [() => host.fs.apply(changes, signal)];
      await serveSocket(
        { host, socket, server, prepare, failureMessage: "cannot serve the Pods API", clock, log },
        signal,
      );
    },
  };
}
