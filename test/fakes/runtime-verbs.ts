import { type Duplex, duplexPair } from "node:stream";
import type * as cri from "../../src/gen/cri.ts";
import {
  ContainerState,
  ContainerStats,
  ContainerStatus,
  ContainerStatusResponse,
  ExecSyncResponse,
  Image,
  PodSandboxStatus,
  PodSandboxStatusResponse,
} from "../../src/gen/cri.ts";
import type { Clock } from "../../src/lib/clock.ts";
import { CodedError, abortError, throwIfAborted } from "../../src/lib/errors.ts";
import { onAbort } from "../../src/lib/runnables.ts";
import type { Containers, StreamEndpoint, Images, Sandboxes, Stats, Streams } from "../../src/seams/runtime.ts";
import type { Gate } from "./runtime-gate.ts";
import type { FakeImages } from "./runtime-images.ts";
import { type FakeContainer, type FakePods, listContainers, listSandboxes } from "./runtime-pods.ts";
import { interpret } from "./runtime-programs.ts";

export type StreamVerb = "exec" | "attach" | "portForward";
export type ExecScript = (containerId: string, argv: readonly string[]) => Partial<cri.ExecSyncResponse>;
export type StreamServer = (verb: StreamVerb, request: unknown, connection: Duplex) => void;

/** What the verbs work on; the scripts are read at each call. */
export interface World {
  readonly clock: Clock;
  readonly gate: Gate;
  readonly pods: FakePods;
  readonly images: FakeImages;
  readonly badStarts: Map<string, string>;
  runExec: ExecScript | undefined;
  serve: StreamServer;
}

export function sandboxVerbs({ gate, pods }: World): Sandboxes {
  return {
    async runPodSandbox(request, signal) {
      await gate.enter("runPodSandbox", request, signal);
      if (!request.config) throw new CodedError("invalid_argument", "no sandbox config");
      return { podSandboxId: pods.runSandbox(request.config, request.runtimeHandler) };
    },
    async stopPodSandbox(id, signal) {
      await gate.enter("stopPodSandbox", id, signal);
      const it = pods.sandboxes.get(id);
      if (it) pods.stopSandbox(it);
    },
    async removePodSandbox(id, signal) {
      await gate.enter("removePodSandbox", id, signal);
      const it = pods.sandboxes.get(id);
      if (it) pods.removeSandbox(it);
    },
    async podSandboxStatus(id, signal) {
      await gate.enter("podSandboxStatus", id, signal);
      return PodSandboxStatusResponse.fromPartial({ status: PodSandboxStatus.fromPartial(pods.sandbox(id).status) });
    },
    async listPodSandbox(filter, signal) {
      await gate.enter("listPodSandbox", filter, signal);
      return listSandboxes(pods, filter);
    },
  };
}

export function containerVerbs({ clock, gate, pods, badStarts }: World): Omit<Containers, "execSync"> {
  return {
    async createContainer(request, signal) {
      await gate.enter("createContainer", request, signal);
      if (!request.config) throw new CodedError("invalid_argument", "no container config");
      return { containerId: pods.create(request.podSandboxId, request.config) };
    },
    async startContainer(id, signal) {
      await gate.enter("startContainer", id, signal);
      const it = pods.container(id);
      const name = it.config.metadata?.name ?? "";
      const message = badStarts.get(name);
      if (message === undefined) return pods.start(it);
      badStarts.delete(name);
      pods.failStart(it, message);
      throw new CodedError("unknown", message);
    },
    async stopContainer(id, graceSeconds, signal) {
      await gate.enter("stopContainer", [id, graceSeconds], signal);
      const it = pods.container(id);
      if (!it.program?.ignoresTerm) return pods.exit(it, graceSeconds > 0 ? 143 : 137);
      await elapse(clock, graceSeconds * 1000, signal);
      pods.exit(it, 137);
    },
    async removeContainer(id, signal) {
      await gate.enter("removeContainer", id, signal);
      const it = pods.containers.get(id);
      if (it) pods.remove(it);
    },
    async listContainers(filter, signal) {
      await gate.enter("listContainers", filter, signal);
      return listContainers(pods, filter);
    },
    async containerStatus(id, signal) {
      await gate.enter("containerStatus", id, signal);
      return ContainerStatusResponse.fromPartial({ status: ContainerStatus.fromPartial(pods.container(id).status) });
    },
    async updateContainerResources(request, signal) {
      await gate.enter("updateContainerResources", request, signal);
      running(pods, request.containerId).status.resources = { linux: request.linux, windows: undefined };
    },
    async reopenContainerLog(id, signal) {
      await gate.enter("reopenContainerLog", id, signal);
      running(pods, id);
    },
  };
}

export function execVerb(world: World): Pick<Containers, "execSync"> {
  return {
    async execSync(id, argv, timeoutSeconds, signal) {
      await world.gate.enter("execSync", [id, argv, timeoutSeconds], signal);
      running(world.pods, id);
      if (world.runExec) return ExecSyncResponse.fromPartial(world.runExec(id, argv));
      const { exitCode, stdout, stderr, afterMs } = interpret(argv);
      const limitMs = timeoutSeconds > 0 ? timeoutSeconds * 1000 : Infinity;
      const lastsMs = exitCode === undefined ? Infinity : afterMs;
      await elapse(world.clock, Math.min(limitMs, lastsMs), signal);
      if (lastsMs > limitMs)
        throw new CodedError(
          "deadline_exceeded",
          `failed to exec in container: timeout ${timeoutSeconds}s exceeded: context deadline exceeded`,
        );
      return { exitCode: exitCode ?? 0, stdout: Buffer.from(stdout), stderr: Buffer.from(stderr) };
    },
  };
}

async function elapse(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  if (ms === 0) return;
  if (ms < Infinity) return clock.sleep(ms, signal);
  await onAbort(signal);
  throw abortError(signal);
}

export function imageVerbs({ gate, images }: World): Images {
  return {
    async listImages(signal) {
      await gate.enter("listImages", {}, signal);
      return images.list();
    },
    async imageStatus(image, signal) {
      await gate.enter("imageStatus", image, signal);
      const found = images.find(image.image);
      return found && Image.fromPartial(found);
    },
    async pullImage(request, signal) {
      await gate.enter("pullImage", request, signal);
      return images.pull(request.image?.image ?? "");
    },
    async removeImage(image, signal) {
      await gate.enter("removeImage", image, signal);
      images.remove(image.image);
    },
    async imageFsInfo(signal) {
      await gate.enter("imageFsInfo", {}, signal);
      return images.fsInfo();
    },
  };
}

export function statsVerbs({ gate, pods, clock }: World): Stats {
  const statsOf = (id: string) => {
    const { metadata, labels, annotations } = pods.container(id).status;
    const timestamp = BigInt(Math.round(clock.now())) * 1_000_000n;
    return ContainerStats.fromPartial({
      attributes: { id, metadata, labels, annotations },
      cpu: { timestamp, usageCoreNanoSeconds: { value: 0n } },
      memory: { timestamp, workingSetBytes: { value: 0n } },
      writableLayer: { timestamp, usedBytes: { value: 0n }, inodesUsed: { value: 0n } },
    });
  };
  return {
    async containerStats(id, signal) {
      await gate.enter("containerStats", id, signal);
      return statsOf(id);
    },
    async listContainerStats(filter, signal) {
      await gate.enter("listContainerStats", filter, signal);
      return listContainers(pods, filter && { ...filter, state: undefined }).map(({ id }) => statsOf(id));
    },
  };
}

export function streamVerbs(world: World): Streams {
  const { gate, pods } = world;
  const endpoint = (verb: StreamVerb, request: unknown): StreamEndpoint => ({
    path: `/${verb.toLowerCase()}/token`,
    host: "fake",
    dial: async (signal) => {
      throwIfAborted(signal);
      const [ours, theirs] = duplexPair();
      world.serve(verb, request, theirs);
      return ours;
    },
  });
  return {
    async exec(request, signal) {
      await gate.enter("exec", request, signal);
      running(pods, request.containerId);
      return endpoint("exec", request);
    },
    async attach(request, signal) {
      await gate.enter("attach", request, signal);
      running(pods, request.containerId);
      return endpoint("attach", request);
    },
    async portForward(request, signal) {
      await gate.enter("portForward", request, signal);
      pods.sandbox(request.podSandboxId);
      return endpoint("portForward", request);
    },
  };
}

function running(pods: FakePods, id: string): FakeContainer {
  const it = pods.container(id);
  const { state } = it.status;
  if (state === ContainerState.CONTAINER_RUNNING) return it;
  const name = Object.entries(ContainerState).find(([, value]) => value === state)?.[0];
  throw new CodedError("unknown", `container is in ${name} state`);
}
