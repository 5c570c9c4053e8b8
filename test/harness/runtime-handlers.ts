import { criRuntime } from "../../providers/cri/runtime.ts";
import { localHost } from "../../providers/local/host.ts";
import { PodSandboxFilter } from "../../src/gen/cri.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import type { Pod } from "../../src/objects.ts";
import { podUidLabel } from "../../src/pod/labels.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import type { Cluster } from "./cluster.ts";
import { secondRuntimeHandler } from "./containerd-config.ts";
import { must } from "./processes.ts";
import { hasDocker } from "./runtime-daemon.ts";

/** A handler of runtime classes, as the node's status has it. */
interface Handler {
  readonly name: string;
  readonly features: object;
}

/** The handlers that the cluster's runtime has, by name; undefined for one that does not tell. Taken from the runtime's own
 *  tools. */
export async function handlersOf(cluster: Cluster): Promise<readonly Handler[] | undefined> {
  if (hasDocker(cluster.provider)) {
    const names = Object.keys(JSON.parse(await docker(cluster, ["info", "--format", "{{json .Runtimes}}"])) as object);
    const features = { recursiveReadOnlyMounts: false, userNamespaces: false };
    return ["", ...names].toSorted().map((name) => ({ name, features }));
  }
  if (cluster.containerd === "1.6") return undefined;
  const { mountOptions, linux } = JSON.parse(await must([cluster.tools.path("runc"), "features"])) as RuncFeatures;
  const features = {
    recursiveReadOnlyMounts: mountOptions.includes("rro"),
    userNamespaces: linux.mountExtensions?.idmap?.enabled === true,
  };
  return ["", "runc", secondRuntimeHandler].map((name) => ({ name, features }));
}

/** @see https://github.com/opencontainers/runtime-spec/blob/main/features.md */
interface RuncFeatures {
  readonly mountOptions: readonly string[];
  readonly linux: { readonly mountExtensions?: { readonly idmap?: { readonly enabled?: boolean } } };
}

/** The handler that a pod's sandbox runs with, as the runtime itself has it; empty for the runtime's default. */
export async function sandboxHandler(cluster: Cluster, pod: Pod): Promise<string> {
  const { uid } = pod.metadata;
  if (hasDocker(cluster.provider)) {
    const [id = ""] = (await docker(cluster, ["ps", "--quiet", `--filter=label=${podUidLabel}=${uid}`])).split("\n");
    return (await docker(cluster, ["inspect", "--format={{.HostConfig.Runtime}}", id])).trim();
  }
  await using runtime = criOf(cluster);
  const filter = PodSandboxFilter.fromPartial({ labelSelector: { [podUidLabel]: uid } });
  const [sandbox] = await runtime.listPodSandbox(filter, AbortSignal.timeout(30_000));
  if (!sandbox) throw new Error(`pod ${pod.metadata.name} has no sandbox`);
  return sandbox.runtimeHandler;
}

function criOf({ runtimeSocket }: Cluster): Runtime {
  const clock = systemClock();
  const sockets = { runtimeSocket, imageSocket: runtimeSocket };
  return criRuntime({ ...sockets, requestTimeoutMs: 30_000, host: localHost({ clock }), clock, log: createLogger(0) });
}

function docker({ runtimeSocket }: Cluster, args: readonly string[]): Promise<string> {
  return must(["docker", "--host", `unix://${runtimeSocket}`, ...args]);
}
