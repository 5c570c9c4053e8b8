import { readySandboxIPs } from "../pod/sandbox.ts";
import { type PodSandboxConfig, PodSandboxState, type PodSandboxStatus, RunPodSandboxRequest } from "../gen/cri.ts";
import { messageOf } from "../lib/errors.ts";
import { runConcurrently } from "../lib/run-concurrently.ts";
import type { Pod } from "../objects.ts";
import type { EventSink } from "../pipeline.ts";
import { podReference } from "../pod/reference.ts";
import { hasUserNamespace } from "../pod/security.ts";
import type { ResourceManager } from "../resource-manager.ts";
import type { AllocatedPod } from "../roles.ts";
import type { Sandboxes } from "../seams/runtime.ts";
import { runtimeErrorText } from "../pod/error-text.ts";
import type { PodServiceTunnel, RuntimeClasses } from "./ports.ts";
import type { SandboxPacing } from "./sandbox-pacing.ts";
import type { ReadySandbox, StartMeasures } from "./start-container.ts";

export interface SandboxDeps {
  readonly runtime: Pick<Sandboxes, "runPodSandbox" | "podSandboxStatus">;
  readonly configureSandbox: (pod: Pod, attempt: number, signal: AbortSignal) => Promise<PodSandboxConfig>;
  /** Creates the directory for the logs of the pod's containers. */
  readonly createLogDirectory: (pod: Pod, signal: AbortSignal) => Promise<void>;
  readonly runtimeClasses: RuntimeClasses;
  readonly managers: readonly Pick<ResourceManager, "preparePod">[];
  readonly events: EventSink;
  /** The service tunnel, opened for a new sandbox's addresses; absent without one. */
  readonly tunnel: PodServiceTunnel | undefined;
  readonly measures: StartMeasures;
  /** Delays the creation of a sandbox while the target is busy with others. */
  readonly paceSandbox: SandboxPacing;
  readonly uninterrupted: AbortSignal;
}

/** A new sandbox. */
export interface NewSandbox extends Pick<ReadySandbox, "id" | "config"> {
  /** Its status, once it is ready for containers. Rejects with the runtime's error, after the event that reports it. */
  readonly ready: Promise<ReadyStatus>;
}

interface ReadyStatus {
  readonly status: PodSandboxStatus;
  /** Addresses of the pod, primary first. */
  readonly ips: readonly string[];
}

/** Builds a sandbox's configuration and creates the directory for its containers' logs, concurrently. */
export async function prepareSandbox(
  deps: Pick<SandboxDeps, "configureSandbox" | "createLogDirectory">,
  pod: Pod,
  attempt: number,
  signal: AbortSignal,
): Promise<PodSandboxConfig> {
  const [config] = await runConcurrently(
    [(stop) => deps.configureSandbox(pod, attempt, stop), (stop) => deps.createLogDirectory(pod, stop)],
    signal,
  );
  return config;
}

/** Creates a pod's sandbox, and begins to read its addresses. @param prepared result of an earlier prepareSandbox.
 *  @throws the runtime's error, after the event that reports it. */
export async function runSandbox(
  deps: SandboxDeps,
  pod: AllocatedPod,
  attempt: number,
  prepared: PodSandboxConfig | undefined,
  signal: AbortSignal,
): Promise<NewSandbox> {
  await preparePod(deps, pod, signal);
  const failed =
    (reason: string, what: string) =>
    (error: unknown): never => {
      if (!signal.aborted) {
        deps.events.event(podReference(pod), "Warning", reason, `${what}: ${runtimeErrorText(error)}`);
        deps.measures.podFailed();
      }
      throw error;
    };
  deps.measures.podStarting(hasUserNamespace(pod));
  const config = prepared ?? prepareSandbox(deps, pod, attempt, signal);
  const sandbox = await createSandbox(deps, pod, config, signal).catch(
    failed("FailedCreatePodSandBox", "Failed to create pod sandbox"),
  );
  const ready = readStatus(deps, pod, sandbox.id, signal).catch(
    failed("FailedPodSandBoxStatus", "Unable to get pod sandbox status"),
  );
  // Prevents an unhandled rejection before the caller awaits it.
  ready.catch(() => undefined);
  return { ...sandbox, ready };
}

async function createSandbox(
  { runtime, runtimeClasses, paceSandbox, uninterrupted }: SandboxDeps,
  pod: AllocatedPod,
  preparing: PodSandboxConfig | Promise<PodSandboxConfig>,
  signal: AbortSignal,
): Promise<Pick<ReadySandbox, "id" | "config">> {
  const config = await preparing;
  const { runtimeClassName } = pod.spec;
  // The empty name selects the runtime's default handler.
  const runtimeHandler = runtimeClassName ? await runtimeClasses.handler(runtimeClassName, signal) : "";
  const request = RunPodSandboxRequest.fromPartial({ config, runtimeHandler });
  const { podSandboxId: id } = await paceSandbox(() => runtime.runPodSandbox(request, uninterrupted), signal);
  return { id, config };
}

/** Reads the status of a new sandbox, and opens the service tunnel for its addresses. */
async function readStatus(
  { runtime, tunnel, uninterrupted }: SandboxDeps,
  pod: AllocatedPod,
  id: string,
  signal: AbortSignal,
): Promise<ReadyStatus> {
  const { status } = await runtime.podSandboxStatus(id, uninterrupted);
  if (status?.state !== PodSandboxState.SANDBOX_READY) throw new Error("pod sandbox ended right after its start");
  const ips = readySandboxIPs(status);
  if (!pod.spec.hostNetwork) await tunnel?.openFor(pod.metadata.uid, ips, signal);
  return { status, ips };
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
