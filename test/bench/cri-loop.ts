import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { criRuntime } from "../../providers/cri/runtime.ts";
import { localHost } from "../../providers/local/host.ts";
import {
  CreateContainerRequest,
  type PodSandboxConfig,
  ImageSpec,
  PullImageRequest,
  RunPodSandboxRequest,
} from "../../src/gen/cri.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import type { Cluster } from "../harness/cluster.ts";
import { sandboxImage } from "../harness/containerd-config.ts";

/** The runtime calls that any agent has to make for a pod, three to start it and two to stop it: the lower limit of an agent's times. */
export interface BareLoop extends AsyncDisposable {
  /** Runs a pod. @returns milliseconds that it took. */
  run(name: string): Promise<number>;
  /** Stops all pods concurrently, then removes them. @returns milliseconds until the last one had stopped. */
  end(): Promise<number>;
}

/** The API server's default for terminationGracePeriodSeconds. */
const graceSeconds = 30;

/** Speaks to the cluster's containerd; no agent may run beside it, for one would take its pods away. */
export async function openBareLoop({ layout, runtimeSocket }: Cluster): Promise<BareLoop> {
  const clock = systemClock();
  const runtime = criRuntime({
    runtimeSocket,
    imageSocket: runtimeSocket,
    requestTimeoutMs: 120_000,
    host: localHost({ clock }),
    clock,
    log: createLogger(0),
  });
  const { signal } = new AbortController();
  const image = ImageSpec.fromPartial({ image: sandboxImage });
  await runtime.pullImage(PullImageRequest.fromPartial({ image }), signal);
  const running: { readonly podSandboxId: string; readonly containerId: string }[] = [];
  const configOf = (name: string): PodSandboxConfig => {
    const logDirectory = join(layout.podLogs, `bare_${name}`);
    mkdirSync(join(logDirectory, "main"), { recursive: true });
    const { config } = RunPodSandboxRequest.fromPartial({
      config: {
        metadata: { name, uid: name, namespace: "bare", attempt: 0 },
        hostname: name,
        logDirectory,
        linux: { cgroupParent: `${layout.cgroup}/bare/${name}` },
      },
    });
    if (!config) throw new Error("a sandbox request without a configuration");
    return config;
  };
  return {
    async run(name) {
      const sandboxConfig = configOf(name);
      const began = performance.now();
      const request = RunPodSandboxRequest.fromPartial({ config: sandboxConfig });
      const { podSandboxId } = await runtime.runPodSandbox(request, signal);
      const config = { metadata: { name: "main", attempt: 0 }, image, logPath: "main/0.log", linux: {} };
      const container = CreateContainerRequest.fromPartial({ podSandboxId, config, sandboxConfig });
      const { containerId } = await runtime.createContainer(container, signal);
      await runtime.startContainer(containerId, signal);
      running.push({ podSandboxId, containerId });
      return performance.now() - began;
    },
    async end() {
      const ended = running.splice(0);
      const began = performance.now();
      await Promise.all(
        ended.map(async ({ podSandboxId, containerId }) => {
          await runtime.stopContainer(containerId, graceSeconds, signal);
          await runtime.stopPodSandbox(podSandboxId, signal);
        }),
      );
      const took = performance.now() - began;
      await Promise.all(ended.map(({ podSandboxId }) => runtime.removePodSandbox(podSandboxId, signal)));
      return took;
    },
    [Symbol.asyncDispose]: () => runtime[Symbol.asyncDispose](),
  };
}
