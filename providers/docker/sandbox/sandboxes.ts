import type { ContainerInspectInfo, PortMap, ContainerInfo } from "dockerode";
import {
  NamespaceMode,
  type PodSandboxConfig,
  type PodSandboxFilter,
  LinuxPodSandboxStatus,
  PodSandbox,
  PodSandboxMetadata,
  PodSandboxNetworkStatus,
  PodSandboxState,
  PodSandboxStatus,
} from "../../../src/gen/cri.ts";
import { ignoreNotFound } from "../../../src/lib/errors.ts";
import type { Sandboxes } from "../../../src/seams/runtime.ts";
import { takeStartInspection, type DockerSandboxDeps, runDockerSandbox } from "./run.ts";
import { type LoopbackPorts, isLoopbackHostIp, onLoopback } from "../network/loopback-ports.ts";
import { cacheSandbox } from "../container-facts.ts";
import {
  containerType,
  sandboxIdLabel,
  sandboxType,
  parseSandboxName,
  runtimeHandlerLabel,
} from "../container/names.ts";
import { postStop } from "../container/containers.ts";
import { inspectOwn, listOwn } from "../container/own.ts";
import type { DockerParts } from "../parts.ts";
import { forceRemove, removeContainer } from "../container/remove.ts";
import { namespacesOf } from "./spec.ts";
import { podNameLabel, podNamespaceLabel, podUidLabel } from "../../../src/pod/labels.ts";
import { criLabels } from "../container/labels.ts";
import { nanoseconds, secondsToNanoseconds } from "../client/times.ts";

/** Sandboxes of this node over the Engine API. */
export function dockerSandboxes(deps: DockerSandboxDeps & { readonly loopbackPorts: LoopbackPorts }): Sandboxes {
  const { parts, network, loopbackPorts } = deps;
  let rulesSynced = false;
  /** Syncs the rules after the removal of a sandbox that had, or may have had, host ports on the loopback. */
  const syncAfterRemoval = async (gone: ContainerInspectInfo | undefined, signal: AbortSignal) => {
    if (!gone || onLoopback(gone.HostConfig.PortBindings as PortMap | null)) await loopbackPorts.sync(signal);
  };
  return {
    async runPodSandbox(request, signal) {
      const podSandboxId = await runDockerSandbox(deps, request, signal);
      if (requestsLoopbackPort(request.config)) await loopbackPorts.sync(signal);
      return { podSandboxId };
    },
    stopPodSandbox: async (id, signal) => syncAfterRemoval(await stopSandbox(parts, id, signal), signal),
    removePodSandbox: async (id, signal) => syncAfterRemoval(await removeSandbox(parts, id, signal), signal),
    async podSandboxStatus(id, signal) {
      const found = takeStartInspection(parts, id) ?? (await inspectOwn(parts, id, sandboxType, signal));
      cacheSandbox(parts.facts, found);
      return { status: sandboxStatus(found, network.id()), info: {}, containersStatuses: [], timestamp: 0n };
    },
    async listPodSandbox(filter, signal) {
      const found = await listSandboxes(parts, filter, signal);
      // The first list shows which sandboxes have ended since the last run of graftlet.
      if (!rulesSynced) await loopbackPorts.sync(signal);
      rulesSynced = true;
      return found;
    },
  };
}

function requestsLoopbackPort(config: PodSandboxConfig | undefined): boolean {
  if (!config || namespacesOf(config).network === NamespaceMode.NODE) return false;
  return config.portMappings.some(({ hostPort, hostIp }) => hostPort > 0 && isLoopbackHostIp(hostIp));
}

async function listSandboxes(parts: DockerParts, filter: PodSandboxFilter | undefined, signal: AbortSignal) {
  const { id, labelSelector = {}, state } = filter ?? {};
  const found = await listOwn(parts, sandboxType, { labels: labelSelector, ...(id && { id }) }, signal);
  const sandboxes = found.map(listedSandbox);
  return state ? sandboxes.filter((sandbox) => sandbox.state === state.state) : sandboxes;
}

/** Grace period of the sandbox's own program, seconds; the program exits on SIGTERM at once. */
const sandboxGraceSeconds = 10;

/** Stops the sandbox's containers, then the sandbox. Containers are found by label, even if the sandbox itself was
 *  removed by hand. Ended or missing ones are skipped.
 *  @returns the sandbox before the stop, if it existed. */
async function stopSandbox(
  parts: DockerParts,
  id: string,
  signal: AbortSignal,
): Promise<ContainerInspectInfo | undefined> {
  const containers = await containersOf(parts, id, signal);
  const running = containers.filter(({ State }) => !["created", "exited", "dead"].includes(State));
  await Promise.all(running.map(({ Id }) => ignoreNotFound(postStop(parts, Id, 0, signal))));
  const sandbox = await ignoreNotFound(inspectOwn(parts, id, sandboxType, signal));
  if (sandbox?.State.Running) await ignoreNotFound(postStop(parts, sandbox.Id, sandboxGraceSeconds, signal));
  return sandbox;
}

/** Removes a sandbox and its containers. @returns the sandbox before the removal, if it existed. */
async function removeSandbox(
  parts: DockerParts,
  id: string,
  signal: AbortSignal,
): Promise<ContainerInspectInfo | undefined> {
  const containers = await containersOf(parts, id, signal);
  await Promise.all(containers.map(({ Id }) => ignoreNotFound(removeContainer(parts, Id, signal))));
  const sandbox = await ignoreNotFound(inspectOwn(parts, id, sandboxType, signal));
  if (sandbox) await forceRemove(parts, sandbox.Id, signal);
  parts.facts.sandboxes.delete(id);
  parts.facts.emptySandboxes.delete(id);
  return sandbox;
}

function containersOf(parts: DockerParts, id: string, signal: AbortSignal) {
  return listOwn(parts, containerType, { labels: { [sandboxIdLabel]: id } }, signal);
}

type Labels = Readonly<Record<string, string>>;

/** Returns the CRI status of a sandbox from the inspection of its container.
 *  @param networkId the pods' network, whose address comes first. */
function sandboxStatus(
  { Id, Name, Created, State, Config, HostConfig, NetworkSettings }: ContainerInspectInfo,
  networkId: string | undefined,
): PodSandboxStatus {
  const labels = Config.Labels ?? {};
  return PodSandboxStatus.fromPartial({
    id: Id,
    metadata: sandboxMetadata(Name, labels),
    state: sandboxState(State.Status),
    createdAt: nanoseconds(Created),
    network: sandboxNetwork(NetworkSettings, networkId),
    linux: LinuxPodSandboxStatus.fromPartial({
      namespaces: {
        options: {
          network: HostConfig.NetworkMode === "host" ? NamespaceMode.NODE : NamespaceMode.POD,
          pid: HostConfig.PidMode === "host" ? NamespaceMode.NODE : NamespaceMode.CONTAINER,
          ipc: HostConfig.IpcMode === "host" ? NamespaceMode.NODE : NamespaceMode.POD,
        },
      },
    }),
    ...criLabels(labels),
    runtimeHandler: labels[runtimeHandlerLabel] ?? "",
  });
}

/** Converts a list entry to a CRI sandbox; its times have a precision of a second. */
function listedSandbox({ Id, Names, Created, State, Labels }: ContainerInfo): PodSandbox {
  return PodSandbox.fromPartial({
    id: Id,
    metadata: sandboxMetadata(Names[0] ?? "", Labels),
    state: sandboxState(State),
    createdAt: secondsToNanoseconds(Created),
    ...criLabels(Labels),
    runtimeHandler: Labels[runtimeHandlerLabel] ?? "",
  });
}

/** Returns the sandbox's metadata from its labels, or else from its name; the attempt is only in the name. */
export function sandboxMetadata(name: string, labels: Labels): PodSandboxMetadata | undefined {
  const parsed = parseSandboxName(name);
  const uid = labels[podUidLabel] ?? parsed?.uid;
  const podName = labels[podNameLabel] ?? parsed?.name;
  const namespace = labels[podNamespaceLabel] ?? parsed?.namespace;
  if (uid === undefined || podName === undefined || namespace === undefined) return undefined;
  return PodSandboxMetadata.fromPartial({ name: podName, namespace, uid, attempt: parsed?.attempt ?? 0 });
}

/** Returns the CRI state of a sandbox: not ready unless it is running. */
function sandboxState(status: string): PodSandboxState {
  return status === "running" ? PodSandboxState.SANDBOX_READY : PodSandboxState.SANDBOX_NOTREADY;
}

/** Returns the sandbox's addresses in the pods' network, IPv4 first. */
function sandboxNetwork(
  { Networks }: ContainerInspectInfo["NetworkSettings"],
  networkId: string | undefined,
): PodSandboxNetworkStatus {
  const all = Object.values(Networks ?? {});
  const network = all.find(({ NetworkID }) => NetworkID === networkId) ?? all[0];
  const [ip = "", ...others] = [network?.IPAddress, network?.GlobalIPv6Address].filter((address) => address);
  return PodSandboxNetworkStatus.fromPartial({ ip, additionalIps: others.map((other) => ({ ip: other })) });
}
