import { ContainerState, type ContainerStatus, type PodSandboxConfig } from "../gen/cri.ts";
import { hasCode, throwIfAborted } from "../lib/errors.ts";
import type { MountedVolumes, RuntimeIds, RuntimePod } from "../pipeline.ts";
import { isSidecar } from "../pod/containers.ts";
import { readsPodAddresses } from "../pod/env.ts";
import { podReference } from "../pod/reference.ts";
import type { AllocatedPod } from "../roles.ts";
import type { Runtime } from "../seams/runtime.ts";
import type { OnSandboxReady, SyncOutcome } from "../sync/ports.ts";
import { killContainer, killPod } from "./kill.ts";
import type { PrefetchedFacts } from "./prefetch.ts";
import { type ResizeDeps, resizePod } from "./actuate-resources.ts";
import { type SandboxDeps, runSandbox } from "./run-sandbox.ts";
import type { ContainerStart, ReadySandbox } from "./start-container.ts";
import type { Starter, StarterDeps } from "./start-with-backoff.ts";
import type { Step, StepKind } from "./step.ts";

export interface RunStepDeps extends SandboxDeps, StarterDeps, ResizeDeps {
  readonly runtime: Runtime;
  readonly uninterrupted: AbortSignal;
  readonly start: Starter["start"];
}

export interface StepContext {
  readonly pod: AllocatedPod;
  readonly observed: RuntimePod;
  /** Built while volumes were mounted; undefined if that failed. */
  readonly sandboxConfig: PodSandboxConfig | undefined;
  readonly prefetched: Promise<PrefetchedFacts>;
  readonly onSandboxReady: OnSandboxReady;
  readonly mounted: MountedVolumes;
  /** The sandbox for the containers to start, once it is ready. */
  readonly sandbox: ReadySandbox | undefined;
}

export interface StepResult extends Pick<SyncOutcome, "rest" | "error" | "resizeError"> {
  readonly sandbox?: ReadySandbox;
  readonly made?: Partial<RuntimeIds>;
  /** The following steps are left to the next pass. */
  readonly halts?: boolean;
}

type Executor<Kind extends StepKind> = (
  deps: RunStepDeps,
  step: Step<Kind>,
  pass: StepContext,
  signal: AbortSignal,
) => Promise<StepResult>;

const executors: { readonly [Kind in StepKind]: Executor<Kind> } = {
  async killPod(deps, { sandboxChanged }, { pod, observed }, signal) {
    const message = "Pod sandbox changed, it will be killed and re-created.";
    if (sandboxChanged) deps.events.event(podReference(pod), "Normal", "SandboxChanged", message);
    await killPod(deps, { observed, pod, graceSeconds: undefined }, signal);
    return {};
  },

  async killContainer(deps, { status, message, graceSeconds }, { pod, observed }, signal) {
    await killContainer(deps, { status, pod, podIP: observed.ips[0], message, graceSeconds }, signal);
    return {};
  },

  async resetContainer(deps, { status }, { pod, observed }, signal) {
    const how = { podIP: observed.ips[0], message: "killing", graceSeconds: 0 };
    if (status.state !== ContainerState.CONTAINER_EXITED) await killContainer(deps, { status, pod, ...how }, signal);
    await removeFromRuntime(deps, status);
    return {};
  },

  async removeContainer(deps, { status }, { pod }) {
    try {
      // Logs first: a container whose logs could not be removed is retried.
      await deps.removeLog(pod, status, deps.uninterrupted);
      await removeFromRuntime(deps, status);
    } catch (err) {
      deps.log.warn({ err, containerId: status.id }, "cannot remove init container; leaving it to garbage collection");
    }
    return {};
  },

  async resize(deps, { containers, wholePod }, { pod, observed }, signal) {
    try {
      await resizePod(deps, { pod, sandboxId: observed.sandboxes[0]?.id, containers, wholePod }, signal);
      return {};
    } catch (thrown) {
      throwIfAborted(signal);
      const error = thrown instanceof Error ? thrown : new Error(String(thrown));
      return { error, resizeError: error.message };
    }
  },

  async runSandbox(deps, { attempt }, { pod, observed, sandboxConfig, onSandboxReady }, signal) {
    const { id, config, ready } = await runSandbox(deps, pod, attempt, sandboxConfig, signal);
    const isNew = observed.sandboxes.length + observed.containers.length === 0;
    const ips = ready.then(async ({ status, ips: addresses }) => {
      await onSandboxReady(isNew ? { ...observed, ips: addresses, sandboxes: [status] } : undefined).catch(
        (err: unknown) => {
          if (!signal.aborted)
            deps.log.debug({ err, uid: pod.metadata.uid }, "cannot report new sandbox; continuing the pass");
        },
      );
      return addresses;
    });
    // The steps that follow, and the end of the pass, await it.
    ips.catch(() => undefined);
    return { sandbox: { id, config, ips }, made: { sandboxes: [id] } };
  },

  async useSandbox(deps, { sandboxId: id, attempt }, { pod, observed: { ips }, sandboxConfig }, signal) {
    const config = sandboxConfig ?? (await deps.configureSandbox(pod, attempt, signal));
    return { sandbox: { id, config, ips: Promise.resolve(ips) } };
  },

  async startContainer(deps, { container, containerType }, { pod, observed, prefetched, sandbox, mounted }, signal) {
    if (!sandbox) throw new Error(`no sandbox for container ${container.name}`);
    const { images, loggedContainers, files } = await prefetched;
    const created = files.get(container.name);
    const presentImage = images.get(container.name);
    const hasNoLogs = loggedContainers?.has(container.name) === false;
    // Otherwise the container can be created while the sandbox's status is read, which saves a round trip to a remote target.
    if (presentImage === undefined || created === undefined || readsPodAddresses(container)) await sandbox.ips;
    const start: ContainerStart = { pod, container, observed, sandbox, mounted, presentImage, hasNoLogs, created };
    const { started, error } = await deps.start(start, containerType, signal);
    return {
      ...(started && { made: { containers: [started.id] }, rest: started.linked }),
      ...(error && { error, halts: containerType === "init_container" && !isSidecar(container) }),
    };
  },
};

/** Runs one step. @throws an error that ends the pass. */
export function runStep<Kind extends StepKind>(
  deps: RunStepDeps,
  step: Step<Kind>,
  pass: StepContext,
  signal: AbortSignal,
): Promise<StepResult> {
  return executors[step.kind](deps, step, pass, signal);
}

async function removeFromRuntime({ runtime, uninterrupted }: RunStepDeps, { id }: ContainerStatus): Promise<void> {
  await runtime.removeContainer(id, uninterrupted).catch((error: unknown) => {
    if (!hasCode(error, "not_found")) throw error;
  });
}
