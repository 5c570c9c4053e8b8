import type { ContainerStatus } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, codeOf, hasCode, messageOf, throwIfAborted, ignoreNotFound } from "../lib/errors.ts";
import { goQuote } from "../lib/go-quote.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Pod } from "../objects.ts";
import type { EventSink, RuntimePod } from "../pipeline.ts";
import { allContainers, isSidecar } from "../pod/containers.ts";
import { runtimeErrorText } from "../pod/error-text.ts";
import { containerReference, podReference } from "../pod/reference.ts";
import { containerNameOf, isRunning } from "../pod/runs.ts";
import type { Containers, Sandboxes } from "../seams/runtime.ts";
import type { Hooks } from "./hooks.ts";
import type { PodServiceTunnel } from "./ports.ts";

export interface KillDeps extends ClockAndLog {
  readonly runtime: Pick<Containers, "stopContainer"> & Pick<Sandboxes, "stopPodSandbox">;
  readonly hooks: Hooks;
  readonly events: EventSink;
  /** The service tunnel; closed for the pod before its sandboxes stop. */
  readonly tunnel: PodServiceTunnel | undefined;
}

/** Minimum seconds between SIGTERM and SIGKILL, regardless of the grace period and the hook's duration. */
const minGraceSeconds = 2;

export interface KillRequest {
  readonly status: Pick<ContainerStatus, "id" | "labels" | "metadata">;
  readonly pod: Pod;
  /** The pod's primary address. */
  readonly podIP: string | undefined;
  /** Text of the Killing event. */
  readonly message: string;
  /** Overrides the pod's own grace period; 0 leaves no time for a hook. */
  readonly graceSeconds: number | undefined;
  /** The order in which the pod's containers stop, if any; hooks do not wait for it. */
  readonly order?: TerminationOrder | undefined;
}

/** Stops one container, running its preStop hook within the grace period. A missing container counts as stopped.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-flow */
export async function killContainer(deps: KillDeps, request: KillRequest, signal: AbortSignal): Promise<void> {
  const { status, pod, message, order } = request;
  const name = containerNameOf(status);
  deps.events.event(containerReference(pod, name), "Normal", "Killing", message);
  let remaining = request.graceSeconds ?? gracePeriodOf(pod);
  const hook = remaining > 0 ? startPreStop(deps, request, signal) : undefined;
  try {
    if (hook) remaining -= await waitSeconds(deps.clock, hook.done, remaining, signal);
    throwIfAborted(signal);
    if (order && remaining > 0) remaining -= await order.waitForPredecessors(name, remaining, signal);
    await deps.runtime.stopContainer(status.id, Math.max(minGraceSeconds, remaining), signal);
  } catch (error) {
    if (!hasCode(error, "not_found")) throw error;
  } finally {
    await hook?.end();
  }
  order?.markStopped(name);
}

/** A running preStop hook. A hook may exceed the grace period; it is then aborted together with its container. */
function startPreStop({ hooks, events, log }: KillDeps, { status, pod, podIP }: KillRequest, signal: AbortSignal) {
  const name = containerNameOf(status);
  const container = allContainers(pod).find((one) => one.container.name === name)?.container;
  const hook = container && "lifecycle" in container ? container.lifecycle?.preStop : undefined;
  if (!container || !hook) return undefined;
  const over = new AbortController();
  const target = { pod, container, containerId: status.id, podIP };
  /** Never rejects. */
  const done = hooks.run(hook, target, AbortSignal.any([signal, over.signal])).catch((error: unknown) => {
    if (signal.aborted || (over.signal.aborted && hook.sleep)) return;
    // A command's output may be a secret.
    log.debug({ ...(!hook.exec && { err: error }), containerId: status.id }, "preStop hook failed");
    events.event(containerReference(pod, container.name), "Warning", "FailedPreStopHook", "PreStopHook failed");
  });
  return {
    done,
    /** Aborts the hook once its container is gone. */
    async end() {
      over.abort();
      await done;
    },
  };
}

export interface PodKill {
  readonly observed: RuntimePod;
  /** Undefined for a pod known only to the runtime. */
  readonly pod: Pod | undefined;
  readonly graceSeconds: number | undefined;
}

/** Terminates a pod; failures are reported by an event. @throws after all parts have been tried, if any of them could not be stopped. */
export async function terminatePod(deps: KillDeps, kill: PodKill, signal: AbortSignal): Promise<void> {
  try {
    await killPod(deps, kill, signal);
  } catch (error) {
    const pod = kill.pod ?? podFromRuntime(kill.observed);
    if (!signal.aborted)
      deps.events.event(podReference(pod), "Warning", "FailedKillPod", `error killing pod: ${messageOf(error)}`);
    throw error;
  }
}

/** Stops all running containers of a pod concurrently, sidecars in order, then its sandboxes.
 *  @throws after all parts have been tried: an error with the kubelet's text and the code of the first failure. */
export async function killPod(
  deps: KillDeps,
  { observed, pod = podFromRuntime(observed), graceSeconds }: PodKill,
  signal: AbortSignal,
): Promise<void> {
  const running = observed.containers.filter(isRunning);
  const podIP = observed.ips[0];
  const order = pod.spec.initContainers?.some(isSidecar)
    ? terminationOrder(pod, new Set(running.map(containerNameOf)), deps.clock)
    : undefined;
  const stops = running.map((status) => {
    const name = containerNameOf(status);
    const message = `Stopping container ${name}`;
    const stop = killContainer(deps, { status, pod, podIP, message, graceSeconds, order }, signal);
    return failureOf("KillContainer", name, stop);
  });
  const failures = await Promise.all(stops);
  await deps.tunnel?.closeFor(observed.uid, signal);
  const sandboxes = observed.sandboxes.map(({ id }) =>
    failureOf("KillPodSandbox", observed.uid, stopSandbox(deps, id, signal)),
  );
  // Like the kubelet, report one result for all sandboxes.
  failures.push((await Promise.all(sandboxes)).findLast((failure) => failure !== undefined));
  const failed = failures.filter((failure) => failure !== undefined);
  if (failed.length === 0) return;
  throwIfAborted(signal);
  throw joinFailures(failed);
}

async function stopSandbox({ runtime }: KillDeps, sandboxId: string, signal: AbortSignal): Promise<void> {
  await ignoreNotFound(runtime.stopPodSandbox(sandboxId, signal));
}

interface Failure {
  readonly text: string;
  readonly error: unknown;
}

async function failureOf(action: string, target: string, work: Promise<void>): Promise<Failure | undefined> {
  try {
    await work;
    return undefined;
  } catch (error) {
    const why = goQuote(runtimeErrorText(error));
    return { text: `failed to ${goQuote(action)} for ${goQuote(target)} with ${action}Error: ${why}`, error };
  }
}

function joinFailures(failures: readonly Failure[]): CodedError {
  const texts = failures.map(({ text }) => text);
  const cause = failures[0]?.error;
  return new CodedError(codeOf(cause), texts.length === 1 ? texts.join() : `[${texts.join(", ")}]`, { cause });
}

/** A minimal Pod for a pod known only to the runtime: it has no hooks and no grace period. */
function podFromRuntime({ uid, name, namespace, containers }: RuntimePod): Pod {
  const names = new Set(containers.map(containerNameOf));
  return { metadata: { uid, name, namespace }, spec: { containers: [...names].map((each) => ({ name: each })) } };
}

/** The grace period of a pod, in seconds. */
function gracePeriodOf({ metadata, spec }: Pod): number {
  return metadata.deletionGracePeriodSeconds ?? spec.terminationGracePeriodSeconds ?? minGraceSeconds;
}

/** The termination order of a pod with sidecars. */
type TerminationOrder = ReturnType<typeof terminationOrder>;

/** Sidecars stop after all main containers, in reverse order; containers that are not running are not waited for.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#termination-with-sidecars */
function terminationOrder(pod: Pod, running: ReadonlySet<string>, clock: Clock) {
  const stops = new Map([...running].map((name) => [name, Promise.withResolvers<void>()]));
  const sidecars = (pod.spec.initContainers ?? []).filter(isSidecar).map(({ name }) => name);
  const predecessors = (name: string): readonly string[] => {
    const place = sidecars.indexOf(name);
    return place < 0 ? [] : [...pod.spec.containers.map((container) => container.name), ...sidecars.slice(place + 1)];
  };
  return {
    /** Waits until the containers that must stop before this one have stopped. @returns whole seconds waited, at most `seconds`. */
    async waitForPredecessors(name: string, seconds: number, signal: AbortSignal) {
      const waiting = predecessors(name).flatMap((other) => stops.get(other)?.promise ?? []);
      return waiting.length === 0 ? 0 : waitSeconds(clock, Promise.all(waiting), seconds, signal);
    },
    markStopped: (name: string) => stops.get(name)?.resolve(),
  };
}

/** Waits for a promise, at most `seconds`. @returns whole seconds waited. @throws when the signal aborts. */
async function waitSeconds(
  clock: Clock,
  what: Promise<unknown>,
  seconds: number,
  signal: AbortSignal,
): Promise<number> {
  const began = clock.monotonic();
  const over = new AbortController();
  const timeout = clock.sleep(seconds * 1000, AbortSignal.any([signal, over.signal]));
  try {
    await Promise.race([what, timeout]);
  } finally {
    over.abort();
    await timeout.catch(() => undefined);
  }
  return Math.min(seconds, Math.floor((clock.monotonic() - began) / 1000));
}
