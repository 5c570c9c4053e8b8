import { CodedError } from "../../src/lib/errors.ts";
import { isRecord } from "../../src/lib/record.ts";
import { rfc3339 } from "../../src/lib/rfc3339.ts";
import { createSharedPromise } from "../../src/lib/shared-promise.ts";
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
import { openBridge } from "./runtime/bridge.ts";
import { type SshConfig, readSshConfig } from "./config.ts";
import { type FoundRuntime, type Protocol, findRuntime } from "./runtime/find.ts";
import { type SshHost, sshHost } from "./host.ts";
import { lateRuntime } from "./runtime/late.ts";
import type { Link } from "./connection/link.ts";
import type { Entrances } from "./reverse/entrances.ts";
import { missingRights } from "./shell/privileges.ts";

/** Provider for a machine reached over SSH, with any supported runtime; graftlet installs nothing there. Other pods of the runtime are left
 *  alone, unless `cri.sharing` reserves the runtime for this node.
 *  @param entrances the process's listeners for reverse tunnels. */
export function sshProvider(entrances: Entrances): ProviderFactory {
  return (options) => openSsh(options, entrances);
}

async function openSsh(options: ProviderOptions, entrances: Entrances): Promise<Target> {
  const config = readSshConfig(options.config);
  const cri = criConfigOf(config);
  const docker = dockerConfigOf(config, options.nodeName);
  const { clock, log } = options;
  const reverse = config.reverse && entrances.join(config.reverse, options);
  const host = sshHost({ config, clock, log, ...(reverse && { reverse }) });
  const { requestTimeoutMs } = options;
  const make = (socket: string, protocol: Protocol): Promise<Runtime> =>
    protocol === "docker"
      ? Promise.resolve(dockerRuntime({ ...options, config: { ...docker, socket }, host }))
      : bridgedCri({ ...options, host, requestTimeoutMs }, socket, cri);
  const { runtime, find } = foundRuntime(options, host, make, config);
  return {
    host,
    runtime,
    sharing: cri.sharing,
    link: troubleOf(host.link),
    network: networkOf(config),
    runtimeSocket: async (signal) => (await find(signal)).socket,
    missingRights: async (signal) => missingRights(await host.privileges(signal)),
    ...(config.rootDir !== undefined && { rootDir: config.rootDir }),
    async [Symbol.asyncDispose]() {
      await runtime[Symbol.asyncDispose]();
      await host[Symbol.asyncDispose]();
    },
  };
}

/** Reports why a link is down, for the node's Ready condition. The last reason persists while the link is reconnecting. */
export function troubleOf(link: Pick<Link, "state" | "onChange">): TargetLink {
  let last: LinkTrouble | undefined;
  let losses = 0;
  let standing = 0;
  link.onChange((state) => {
    const now = state.is === "up" ? state.connections : 0;
    if (now < standing) losses += 1;
    standing = now;
  });
  const trouble = (): LinkTrouble | undefined => {
    const state = link.state();
    if (state.is === "up") last = undefined;
    if (state.is === "down")
      last = { reason: state.why.reason, message: `${state.why.message} (since ${rfc3339(state.since)})` };
    return last;
  };
  return { trouble, losses: () => losses, onChange: (listener) => link.onChange(() => listener()) };
}

/** The configuration of the pods' network. */
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

/** The cri provider's fields, except the endpoint, which `runtime` sets. @throws CodedError invalid_argument. */
export function criConfigOf({ cri }: Pick<SshConfig, "cri">): CriConfig {
  refuseSocket("cri.endpoint", cri, "endpoint");
  const byDefault = { sharing: "shared" };
  return readCriConfig(isRecord(cri) ? { ...byDefault, ...cri } : (cri ?? byDefault), {
    containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
    imageServiceEndpoint: "",
  });
}

/** The docker provider's fields, except the socket, which `runtime` sets. @throws CodedError invalid_argument. */
export function dockerConfigOf({ docker }: Pick<SshConfig, "docker">, nodeName: string): DockerConfig {
  refuseSocket("docker.socket", docker, "socket");
  return readDockerConfig(docker, nodeName);
}

function refuseSocket(field: string, given: unknown, name: string): void {
  if (!isRecord(given) || given[name] === undefined) return;
  throw new CodedError(
    "invalid_argument",
    `providerConfig.${field} is not supported for a target over SSH: set the socket in providerConfig.runtime instead.`,
  );
}

/** Timeout for detecting the runtime, milliseconds. */
const findMs = 30_000;

/** Detects the runtime on first use, and keeps it once it has answered. */
function foundRuntime(
  { nodeName, clock, log }: ProviderOptions,
  host: SshHost,
  make: (socket: string, protocol: Protocol) => Promise<Runtime>,
  { runtime: wanted }: SshConfig,
): { readonly runtime: Runtime; readonly find: (signal: AbortSignal) => Promise<FoundRuntime> } {
  let found: FoundRuntime | undefined;
  const shared = createSharedPromise<FoundRuntime>(clock, findMs);
  const find = async (signal: AbortSignal): Promise<FoundRuntime> => {
    // If the link is down, its error has the reason; otherwise the runtime would merely appear unavailable.
    await host.link.connection(signal);
    host.link.exchanged();
    const reach = (until: AbortSignal) => host.link.connection(until);
    return (found ??= await shared(
      (until) => findRuntime({ nodeName, host, make, reach, log }, wanted, until),
      signal,
    ));
  };
  const runtime = {
    ...lateRuntime(
      async (signal) => (await find(signal)).runtime,
      () => found?.runtime,
    ),
    async [Symbol.asyncDispose]() {
      await found?.runtime[Symbol.asyncDispose]();
    },
  };
  return { runtime, find };
}

/** Time that calls wait for gRPC to reconnect through the bridge after an interruption, milliseconds. */
const bridgePatienceMs = 400;

/** Creates a CRI runtime over a bridged socket, since gRPC connects to local sockets only. */
async function bridgedCri(
  options: Pick<ProviderOptions, "requestTimeoutMs" | "callHeaders" | "clock" | "log"> & { readonly host: SshHost },
  socket: string,
  { runtimeSocket, imageSocket }: CriConfig,
): Promise<Runtime> {
  const runtimeBridge = await openBridge(options.host, socket);
  const imageBridge = imageSocket === runtimeSocket ? undefined : await openBridge(options.host, imageSocket);
  const runtime = criRuntime({
    ...options,
    runtimeSocket: runtimeBridge.path,
    imageSocket: (imageBridge ?? runtimeBridge).path,
    patienceMs: bridgePatienceMs,
  });
  return {
    ...runtime,
    async [Symbol.asyncDispose]() {
      await runtime[Symbol.asyncDispose]();
      await runtimeBridge[Symbol.asyncDispose]();
      await imageBridge?.[Symbol.asyncDispose]();
    },
  };
}
