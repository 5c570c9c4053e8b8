import { CodedError } from "../../src/lib/errors.ts";
import { isRecord } from "../../src/lib/record.ts";
import { rfc3339 } from "../../src/lib/rfc3339.ts";
import { createSharedPromise } from "../../src/lib/single-flight.ts";
import type {
  LinkTrouble,
  ProviderFactory,
  ProviderOptions,
  Target,
  TargetLink,
  TargetNetwork,
} from "../../src/seams/provider.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { type CriConfig, readCriConfig } from "../cri/config.ts";
import { criRuntime } from "../cri/runtime.ts";
import { type DockerConfig, readDockerConfig } from "../docker/config.ts";
import { dockerRuntime } from "../docker/runtime.ts";
import { type SshConfig, readSshConfig } from "./config.ts";
import { type DetectedRuntime, type RuntimeProtocol, detectRuntime } from "./runtime/detect.ts";
import { type SshHost, sshHost } from "./host.ts";
import type { Link } from "./connection/link.ts";
import type { ReverseListeners } from "./reverse/listeners.ts";
import { missingPrivileges } from "./shell/privileges.ts";

/** Provider for a machine reached over SSH, with any supported runtime; graftlet installs nothing there. The runtime's other pods
 *  are left alone, unless `cri.sharing` reserves the runtime for this node.
 *  @param listeners the process's listeners for reverse tunnels. */
export function sshProvider(listeners: ReverseListeners): ProviderFactory {
  return (options) => openSsh(options, listeners);
}

async function openSsh(options: ProviderOptions, listeners: ReverseListeners): Promise<Target> {
  const config = readSshConfig(options.config);
  const cri = criConfigOf(config);
  const docker = dockerConfigOf(config, options.nodeName);
  const { clock, log } = options;
  const reverse = config.reverse && listeners.join(config.reverse, options);
  const host = sshHost({ config, clock, log, ...(reverse && { reverse }) });
  const make = (socket: string, protocol: RuntimeProtocol): Runtime => {
    if (protocol === "docker") return dockerRuntime({ ...options, config: { ...docker, socket }, host });
    const imageSocket = cri.imageSocket === cri.runtimeSocket ? socket : cri.imageSocket;
    return criRuntime({ ...options, runtimeSocket: socket, imageSocket, host });
  };
  const { runtime, find } = createDetectedRuntime(options, host, make, config);
  return {
    host,
    runtime,
    sharing: cri.sharing,
    link: createTargetLink(host.link),
    network: networkOf(config),
    runtimeSocket: async (signal) => (await find(signal)).socket,
    missingPrivileges: async (signal) => missingPrivileges(await host.privileges(signal)),
    ...(config.rootDir !== undefined && { rootDir: config.rootDir }),
    async [Symbol.asyncDispose]() {
      await runtime[Symbol.asyncDispose]();
      await host[Symbol.asyncDispose]();
    },
  };
}

/** Reports why a link is down, for the node's Ready condition. The last reason persists while the link is reconnecting. */
export function createTargetLink(link: Pick<Link, "state" | "onChange">): TargetLink {
  let last: LinkTrouble | undefined;
  let losses = 0;
  let connections = 0;
  link.onChange((state) => {
    const now = state.kind === "up" ? state.connections : 0;
    if (now < connections) losses += 1;
    connections = now;
  });
  const trouble = (): LinkTrouble | undefined => {
    const state = link.state();
    if (state.kind === "up") last = undefined;
    if (state.kind === "down")
      last = { reason: state.why.reason, message: `${state.why.message} (since ${rfc3339(state.since)})` };
    return last;
  };
  return { trouble, losses: () => losses, onChange: (listener) => link.onChange(() => listener()) };
}

/** Returns the configuration of the pods' network. */
export function networkOf({
  network,
  serviceNamespaces,
  kubernetesService,
}: Pick<SshConfig, "network" | "serviceNamespaces" | "kubernetesService">): TargetNetwork {
  return {
    isolated: network === "isolated" || network === "auto",
    ...(network === "auto" && { auto: true }),
    ...(network === "tunneled" && { tunneled: true }),
    ...(serviceNamespaces && { serviceNamespaces }),
    ...(kubernetesService && { kubernetesService }),
  };
}

/** Reads the cri provider's fields. The endpoint is not among them, as `runtime` sets it. @throws CodedError invalid_argument. */
export function criConfigOf({ cri }: Pick<SshConfig, "cri">): CriConfig {
  rejectSocket("cri.endpoint", cri, "endpoint");
  const byDefault = { sharing: "shared" };
  return readCriConfig(isRecord(cri) ? { ...byDefault, ...cri } : (cri ?? byDefault), {
    containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
    imageServiceEndpoint: "",
  });
}

/** Reads the docker provider's fields. The socket is not among them, as `runtime` sets it. @throws CodedError
 *  invalid_argument. */
export function dockerConfigOf({ docker }: Pick<SshConfig, "docker">, nodeName: string): DockerConfig {
  rejectSocket("docker.socket", docker, "socket");
  return readDockerConfig(docker, nodeName);
}

function rejectSocket(field: string, given: unknown, name: string): void {
  if (!isRecord(given) || given[name] === undefined) return;
  throw new CodedError(
    "invalid_argument",
    `providerConfig.${field} is not supported for a target over SSH: set the socket in providerConfig.runtime instead.`,
  );
}

const detectTimeoutMs = 30_000;

/** Detects the runtime on first use, and keeps it once the runtime has answered. */
function createDetectedRuntime(
  { nodeName, clock, log }: ProviderOptions,
  host: SshHost,
  createRuntime: (socket: string, protocol: RuntimeProtocol) => Runtime,
  { runtime: configured }: SshConfig,
): { readonly runtime: Runtime; readonly find: (signal: AbortSignal) => Promise<DetectedRuntime> } {
  let found: DetectedRuntime | undefined;
  const shared = createSharedPromise<DetectedRuntime>(clock, detectTimeoutMs);
  const find = async (signal: AbortSignal): Promise<DetectedRuntime> => {
    // If the link is down, its error has the reason; otherwise the runtime would merely appear unavailable.
    await host.link.connection(signal);
    host.link.countExchange();
    const checkReachable = (until: AbortSignal) => host.link.connection(until);
    return (found ??= await shared(
      (until) => detectRuntime({ nodeName, host, createRuntime, checkReachable, log }, configured, until),
      signal,
    ));
  };
  const runtime = {
    ...lazyRuntime(
      async (signal) => (await find(signal)).runtime,
      () => found?.runtime,
    ),
    async [Symbol.asyncDispose]() {
      await found?.runtime[Symbol.asyncDispose]();
    },
  };
  return { runtime, find };
}

/** Creates a lazy runtime, which is detected on first use: every call waits for `find` and is passed on to the runtime that it
 *  returns.
 *  @param find returns the same runtime each time, and throws while there is none.
 *  @param found returns the runtime if it has been detected already. */
function lazyRuntime(
  find: (signal: AbortSignal) => Promise<Runtime>,
  found: () => Runtime | undefined,
): Omit<Runtime, typeof Symbol.asyncDispose> {
  const call =
    <Given extends readonly unknown[], Answer>(
      pick: (runtime: Runtime) => (...given: [...Given, AbortSignal]) => Promise<Answer>,
    ) =>
    async (...given: [...Given, AbortSignal]): Promise<Answer> => {
      const signal = given.at(-1) as AbortSignal;
      return pick(await find(signal))(...given);
    };
  return {
    version: call((it) => it.version),
    status: call((it) => it.status),
    runtimeConfig: call((it) => it.runtimeConfig),
    updateRuntimeConfig: call((it) => it.updateRuntimeConfig),
    runPodSandbox: call((it) => it.runPodSandbox),
    stopPodSandbox: call((it) => it.stopPodSandbox),
    removePodSandbox: call((it) => it.removePodSandbox),
    podSandboxStatus: call((it) => it.podSandboxStatus),
    listPodSandbox: call((it) => it.listPodSandbox),
    updatePodSandboxResources: async (request, signal) =>
      (await find(signal)).updatePodSandboxResources?.(request, signal),
    createContainer: call((it) => it.createContainer),
    startContainer: call((it) => it.startContainer),
    stopContainer: call((it) => it.stopContainer),
    removeContainer: call((it) => it.removeContainer),
    listContainers: call((it) => it.listContainers),
    containerStatus: call((it) => it.containerStatus),
    updateContainerResources: call((it) => it.updateContainerResources),
    reopenContainerLog: call((it) => it.reopenContainerLog),
    execSync: call((it) => it.execSync),
    listImages: call((it) => it.listImages),
    imageStatus: call((it) => it.imageStatus),
    removeImage: call((it) => it.removeImage),
    imageFsInfo: call((it) => it.imageFsInfo),
    containerStats: call((it) => it.containerStats),
    listContainerStats: call((it) => it.listContainerStats),
    exec: call((it) => it.exec),
    attach: call((it) => it.attach),
    portForward: call((it) => it.portForward),
    pullImage: async (request, signal, onProgress) => (await find(signal)).pullImage(request, signal, onProgress),
    podSandboxStats: async (id, signal) => (await find(signal)).podSandboxStats?.(id, signal),
    listPodSandboxStats: async (filter, signal) => (await find(signal)).listPodSandboxStats?.(filter, signal) ?? [],
    logRoots: async (signal) => (await find(signal)).logRoots?.(signal) ?? [],
    ownedResources: async (signal) => (await find(signal)).ownedResources?.(signal) ?? [],
    unsupportedReason: async (feature, signal) => (await find(signal)).unsupportedReason?.(feature, signal),
    lastAliveAt: () => found()?.lastAliveAt?.(),
    async checkpointContainer(request, signal) {
      const { checkpointContainer } = await find(signal);
      if (!checkpointContainer)
        throw new CodedError("unimplemented", "the container runtime does not support checkpoints");
      await checkpointContainer(request, signal);
    },
    async *events(signal) {
      const { events } = await find(signal);
      if (!events) throw new CodedError("unimplemented", "the runtime does not support events");
      yield* events(signal);
    },
    async *logs(containerId, options, signal) {
      const { logs } = await find(signal);
      if (!logs) throw new CodedError("unimplemented", "the runtime provides logs in files only");
      yield* logs(containerId, options, signal);
    },
  };
}
