import type { RuntimeFeatures, RuntimeHandler, StatusResponse, VersionResponse } from "../gen/cri.ts";
import { messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import { onAbort } from "../lib/runnables.ts";
import type { Runtime } from "../seams/runtime.ts";

const checkIntervalMs = 5_000;
/** Interval before the runtime's first answer, or after it became unreachable: short, to notice its return. */
const failedCheckIntervalMs = 1_000;
/** Silence after which the runtime counts as down; and timeout of one call, milliseconds. */
const downAfterMs = 30_000;
const callTimeoutMs = 5_000;
/** Silence after which a runtime with events is polled: longer than the interval of relists with events. */
const maxEventSilenceMs = 35_000;
/** Interval of version checks: a runtime may be replaced by another version. */
const versionIntervalMs = 60_000;

export type RuntimeHealth = ReturnType<typeof createRuntimeHealth>;

export interface RuntimeHealthDeps extends ClockAndLog {
  readonly runtime: Pick<Runtime, "status" | "version" | "lastAliveAt">;
  /** Called when the result changed. */
  readonly onChange: () => void;
}

/** Polls the runtime's status every five seconds, unless its event stream shows that it is healthy. */
export function createRuntimeHealth({ runtime, clock, log, onChange }: RuntimeHealthDeps) {
  let status: StatusResponse | undefined;
  let version: VersionResponse | undefined;
  let lastAnswer: number | undefined;
  let failure: string | undefined;
  let versionDue = 0;
  /** Start of the pending status call. */
  let askedAt: number | undefined;
  const first = Promise.withResolvers<void>();

  /** True when there is no problem and the event stream would have reported a new one. */
  const isHeard = () => {
    const heard = lastAnswer === undefined || problems().length > 0 ? undefined : runtime.lastAliveAt?.();
    if (heard === undefined || clock.monotonic() - heard >= maxEventSilenceMs) return false;
    lastAnswer = Math.max(lastAnswer ?? heard, heard);
    return failure === undefined;
  };
  const readVersion = async (signal: AbortSignal): Promise<VersionResponse> => {
    if (version && failure === undefined && clock.monotonic() < versionDue) return version;
    const answer = await runtime.version(signal);
    versionDue = clock.monotonic() + versionIntervalMs;
    return answer;
  };
  const check = async (signal: AbortSignal) => {
    const before = problems().join();
    askedAt ??= clock.monotonic();
    try {
      version = await readVersion(signal);
      status = await runtime.status(signal);
      lastAnswer = clock.monotonic();
      askedAt = undefined;
      first.resolve();
      if (failure !== undefined)
        log.info({ version: `${version.runtimeName} ${version.runtimeVersion}` }, "container runtime is up");
      failure = undefined;
    } catch (error) {
      if (signal.aborted) return;
      if (failure === undefined) log.warn({ err: error }, "container runtime does not respond; retrying");
      failure = messageOf(error);
    }
    if (problems().join() !== before) onChange();
  };
  const problems = (unhealthy: readonly string[] = []): readonly string[] => {
    const down = `container runtime is down${failure === undefined ? "" : `: ${failure}`}`;
    if (lastAnswer === undefined)
      return [failure === undefined ? "container runtime status check may not have completed yet" : down, ...unhealthy];
    const now = clock.monotonic();
    if (askedAt !== undefined && now - askedAt > callTimeoutMs && now - lastAnswer > downAfterMs)
      return [down, ...unhealthy];
    const reported = [unmet(status, "RuntimeReady", "container runtime"), networkError()];
    return [...unhealthy, ...reported.filter((text) => text !== undefined)];
  };
  const networkError = () => (status ? unmet(status, "NetworkReady", "container runtime network") : undefined);

  const intervalMs = () => (failure === undefined ? checkIntervalMs : failedCheckIntervalMs);
  const round = (signal: AbortSignal) => (isHeard() ? undefined : check(signal));
  return {
    ...runPeriodically({ name: "runtime-health", intervalMs, clock, log }, round),
    /** Problems that keep the runtime from running pods, in the kubelet's order; empty if healthy. (kubelet, runtimeErrors)
     *  @param unhealthy results of the agent's own health checks, which precede the runtime's conditions. */
    problems,
    /** `problems` without a missing network; no pod is admitted while there are any. */
    runtimeErrors: (): readonly string[] => problems().filter((text) => text !== networkError()),
    /** Why pods get no network; undefined if they do. */
    networkError,
    /** The last version that the runtime reported. */
    version: (): VersionResponse | undefined => version,
    /** True if the runtime answered the last call. */
    isAnswering: (): boolean => failure === undefined,
    /** Resolves once the runtime has answered. */
    answered: (signal: AbortSignal): Promise<void> => Promise.race([first.promise, onAbort(signal)]),
    /** Sorted by name, as runtimes list them in any order. Undefined before the runtime has answered. */
    handlers: (): readonly RuntimeHandler[] | undefined =>
      status?.runtimeHandlers.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
    /** Undefined if the runtime does not report features. */
    features: (): RuntimeFeatures | undefined => status?.features,
  };
}

/** The kubelet's message for an unmet runtime condition; undefined if it is met. */
function unmet(status: StatusResponse | undefined, type: string, what: string): string | undefined {
  const condition = status?.status?.conditions.find((each) => each.type === type);
  if (condition?.status) return undefined;
  return `${what} not ready: ${type}=false reason:${condition?.reason ?? ""} message:${condition?.message ?? ""}`;
}
