import { readySandboxIPs } from "../pod/sandbox.ts";
import { type PodSandboxConfig, PodSandboxState, type PodSandboxStatus, RunPodSandboxRequest } from "../gen/cri.ts";
import { messageOf } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import type { EventSink } from "../pipeline.ts";
import { podReference } from "../pod/reference.ts";
import { hasUserNamespace } from "../pod/security.ts";
import type { ResourceManager } from "../resource-manager.ts";
import type { AllocatedPod } from "../roles.ts";
import type { HostFs } from "../seams/host.ts";
import type { Sandboxes } from "../seams/runtime.ts";
import { runtimeErrorText } from "../pod/error-text.ts";
import type { PodServiceTunnel, RuntimeClasses } from "./ports.ts";
import type { ReadySandbox, StartMeasures } from "./start-container.ts";

export interface SandboxDeps {
  readonly runtime: Pick<Sandboxes, "runPodSandbox" | "podSandboxStatus">;
  readonly fs: Pick<HostFs, "apply">;
  readonly configureSandbox: (pod: Pod, attempt: number, signal: AbortSignal) => Promise<PodSandboxConfig>;
  readonly runtimeClasses: RuntimeClasses;
  readonly managers: readonly Pick<ResourceManager, "preparePod">[];
  readonly events: EventSink;
  /** The service tunnel, opened for a new sandbox's addresses; absent without one. */
  readonly tunnel: PodServiceTunnel | undefined;
  readonly measures: StartMeasures;
  readonly uninterrupted: AbortSignal;
}

/** A new sandbox with its CRI status. */
export interface NewSandbox extends ReadySandbox {
  readonly status: PodSandboxStatus;
}

/** Builds a sandbox's configuration and creates the directory for its containers' logs. */
export async function prepareSandbox(
  deps: Pick<SandboxDeps, "configureSandbox" | "fs">,
  pod: Pod,
  attempt: number,
  signal: AbortSignal,
): Promise<PodSandboxConfig> {
  const config = await deps.configureSandbox(pod, attempt, signal);
  if (config.logDirectory)
    await deps.fs.apply([{ kind: "mkdir", path: config.logDirectory, mode: 0o755, parents: true }], signal);
  return config;
}

/** Creates a pod's sandbox and reads its addresses. @param prepared result of an earlier prepareSandbox.
 *  @throws the runtime's error, after the event that reports it. */
export async function runSandbox(
  deps: SandboxDeps,
  pod: AllocatedPod,
  attempt: number,
  prepared: PodSandboxConfig | undefined,
  signal: AbortSignal,
): Promise<NewSandbox> {
  const { runtime, runtimeClasses, events, tunnel, measures, uninterrupted } = deps;
  await preparePod(deps, pod, signal);
  let [reason, failed] = ["FailedCreatePodSandBox", "Failed to create pod sandbox"];
  measures.podStarting(hasUserNamespace(pod));
  try {
    const config = prepared ?? (await prepareSandbox(deps, pod, attempt, signal));
    const { runtimeClassName } = pod.spec;
    // The empty name selects the runtime's default handler.
    const runtimeHandler = runtimeClassName ? await runtimeClasses.handler(runtimeClassName, signal) : "";
    const request = RunPodSandboxRequest.fromPartial({ config, runtimeHandler });
    const { podSandboxId: id } = await runtime.runPodSandbox(request, uninterrupted);
    [reason, failed] = ["FailedPodSandBoxStatus", "Unable to get pod sandbox status"];
    const { status } = await runtime.podSandboxStatus(id, uninterrupted);
    if (status?.state !== PodSandboxState.SANDBOX_READY) throw new Error("pod sandbox ended right after its start");
    const ips = readySandboxIPs(status);
    if (!pod.spec.hostNetwork) await tunnel?.openFor(pod.metadata.uid, ips, signal);
    return { id, config, ips, status };
  } catch (error) {
    if (!signal.aborted) {
      events.event(podReference(pod), "Warning", reason, `${failed}: ${runtimeErrorText(error)}`);
      measures.podFailed();
    }
    throw error;
  }
}

/** Has the resource managers prepare a pod. A failure is reported by an event. */
async function preparePod({ managers, events }: SandboxDeps, pod: AllocatedPod, signal: AbortSignal): Promise<void> {
  try {
    for (const manager of managers) await manager.preparePod?.(pod, signal);
  } catch (error) {
    const message = `Failed to prepare dynamic resources: ${messageOf(error)}`;
    if (!signal.aborted) events.event(podReference(pod), "Warning", "FailedPrepareDynamicResources", message);
    throw error;
  }
}
