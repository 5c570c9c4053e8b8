import type { ContainerCreateOptions, ContainerInspectInfo } from "dockerode";
import { NamespaceMode, type RunPodSandboxRequest } from "../../../src/gen/cri.ts";
import { CodedError, hasCode } from "../../../src/lib/errors.ts";
import type { EngineCapabilities } from "../engine/capabilities.ts";
import { createNamed } from "../container/create-named.ts";
import { sandboxName, sandboxType } from "../container/names.ts";
import type { PodNetwork } from "../network/pod-network.ts";
import type { DockerParts } from "../parts.ts";
import type { SandboxImage } from "../pause/image.ts";
import { forceRemove } from "../container/remove.ts";
import { namespacesOf, sandboxSecurity, sandboxSpec } from "./spec.ts";
import { securityOptions } from "../container/security-options.ts";
import type { EngineInfo } from "../client/engine-info.ts";
import { inspectOwn } from "../container/own.ts";

export interface DockerSandboxDeps {
  readonly parts: DockerParts;
  readonly network: PodNetwork;
  readonly capabilities: EngineCapabilities;
  readonly sandboxImage: SandboxImage;
}

/** Time limit for removing a sandbox that failed to start, milliseconds. */
const removeTimeoutMs = 30_000;

/** Creates and starts a pod's sandbox; removes it if the start fails.
 *  @returns its ID.
 *  @throws CodedError already_exists if this node has it already; otherwise the daemon's message. */
export async function runDockerSandbox(
  deps: DockerSandboxDeps,
  { config, runtimeHandler }: RunPodSandboxRequest,
  signal: AbortSignal,
): Promise<string> {
  if (!config?.metadata) throw new CodedError("invalid_argument", "a sandbox needs metadata");
  const name = sandboxName(config.metadata);
  const onNetwork = namespacesOf(config).network !== NamespaceMode.NODE;
  const start = async () => {
    requireRuntime(runtimeHandler, await deps.capabilities.info(signal));
    const settings = await sandboxSettings(deps, config.linux?.securityContext, signal);
    const network = onNetwork ? { network: await deps.network.ensure(signal) } : {};
    return createAndStart(deps.parts, name, sandboxSpec({ config, runtimeHandler, ...settings, ...network }), signal);
  };
  try {
    return await start();
  } catch (error) {
    // The network or the image was removed meanwhile, or the network recreated: try once more with the current ones.
    if (!hasCode(error, "not_found") || (await dependenciesExist(deps, onNetwork, signal))) throw error;
    return start();
  }
}

async function dependenciesExist(
  { network, sandboxImage }: DockerSandboxDeps,
  onNetwork: boolean,
  signal: AbortSignal,
): Promise<boolean> {
  const all = await Promise.all([sandboxImage.verify(signal), !onNetwork || network.verify(signal)]);
  return all.every(Boolean);
}

/** Determines the settings common to all sandboxes of this daemon, and this sandbox's security options. */
async function sandboxSettings(
  { parts, capabilities, sandboxImage }: DockerSandboxDeps,
  security: Parameters<typeof sandboxSecurity>[0],
  signal: AbortSignal,
) {
  const image = await sandboxImage.ensure(signal);
  await capabilities.probe(image, signal);
  const { CgroupDriver } = await capabilities.info(signal);
  return {
    image,
    nodeName: parts.nodeName,
    cgroupDriver: CgroupDriver,
    oomScoreAdj: capabilities.sandboxOomScoreAdj(),
    securityOptions: await securityOptions(sandboxSecurity(security), parts.host.fs, signal),
  };
}

async function createAndStart(
  parts: DockerParts,
  name: string,
  spec: ContainerCreateOptions,
  signal: AbortSignal,
): Promise<string> {
  const id = await createNamed(parts, name, spec, signal);
  try {
    await startAndInspect(parts, id, signal);
    parts.facts.emptySandboxes.set(id, true);
    return id;
  } catch (error) {
    await removeFailed(parts, id);
    throw error;
  }
}

/** Removes a sandbox that failed to start. If that fails, it is removed later, like any sandbox that is not ready; its name is in
 *  use until then. */
async function removeFailed(parts: DockerParts, id: string): Promise<void> {
  try {
    await forceRemove(parts, id, parts.clock.within(removeTimeoutMs));
  } catch (error) {
    parts.log.warn({ err: error, sandbox: id }, "cannot remove a sandbox that failed to start; retrying later");
  }
}

/** Newer daemons also accept the full name of a containerd shim, which they do not list. */
const shimName = /^io\.containerd\./;

/** Checks a runtime class's handler, the name of one of the daemon's runtimes.
 *  @param handler empty for the daemon's default.
 *  @throws CodedError invalid_argument, a sentence with the remedy, if the daemon does not have it.
 *  @see https://docs.docker.com/engine/daemon/alternative-runtimes/ */
function requireRuntime(handler: string, { Runtimes }: Pick<EngineInfo, "Runtimes">): void {
  const known = Object.keys(Runtimes ?? {});
  if (handler === "" || known.includes(handler) || shimName.test(handler)) return;
  throw new CodedError(
    "invalid_argument",
    `the handler ${JSON.stringify(handler)} of the pod's runtime class is not among the runtimes of this Docker Engine (${known.toSorted().join(", ")}): add it under "runtimes" in daemon.json and reload the Engine, or name another handler in the RuntimeClass.`,
  );
}

/** Delay of the inspection after the start call, milliseconds: the daemon handles the start first, then answers the
 *  inspection. */
const inspectDelayMs = 20;
/** Age up to which an inspection counts as current, milliseconds. */
const maxAgeMs = 50;

/** Starts a sandbox and inspects it at the same time, for the status call that follows: this saves a round trip to a
 *  remote daemon. An inspection from before the start is discarded.
 *  @throws CodedError with the daemon's message. */
export async function startAndInspect(parts: DockerParts, id: string, signal: AbortSignal): Promise<void> {
  const { docker, clock, facts } = parts;
  const over = new AbortController();
  const inspection = clock
    .sleep(inspectDelayMs, over.signal)
    .then(() => inspectOwn(parts, id, sandboxType, signal))
    .catch(() => undefined);
  try {
    await docker.request({ method: "POST", path: `/containers/${id}/start` }, signal);
  } finally {
    over.abort();
  }
  const found = await inspection;
  if (found?.State.Running) facts.startInspections.set(id, { found, inspectedAt: clock.monotonic() });
}

/** Returns the inspection from the sandbox's start, once, if it is still current. */
export function takeStartInspection({ facts, clock }: DockerParts, id: string): ContainerInspectInfo | undefined {
  const inspection = facts.startInspections.get(id);
  facts.startInspections.delete(id);
  return inspection && clock.monotonic() - inspection.inspectedAt <= maxAgeMs ? inspection.found : undefined;
}
