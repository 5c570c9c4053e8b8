import type { RuntimeHandler, StatusResponse, VersionResponse } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { patrol } from "../lib/patrol.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import type { Runtime } from "../seams/runtime.ts";

const checkMs = 5_000;
/** While the runtime has never answered, or has just gone: look often, so that it is noticed when it comes. */
const impatientMs = 1_000;
/** The runtime may be silent this long before the node says so, and have so long for an answer. */
const downAfterMs = 30_000;
const patienceMs = 5_000;
/** One that was heard may be silent this long before it is asked: longer than relists are apart while events flow. */
const heardMs = 35_000;
/** A runtime may be replaced by another version between two questions. */
const versionEveryMs = 60_000;

export interface RuntimeHealth extends Service {
  /** Why the runtime is not fit to run pods; empty when it is. */
  problems(): readonly string[];
  /** Why pods get no network, or undefined. */
  networkError(): string | undefined;
  version(): VersionResponse | undefined;
  /** Resolves once the runtime has answered. */
  answered(signal: AbortSignal): Promise<void>;
  handlers(): readonly RuntimeHandler[];
  supplementalGroupsPolicy(): boolean;
}

export interface RuntimeHealthDeps {
  readonly runtime: Pick<Runtime, "status" | "version" | "heardAt">;
  readonly clock: Clock;
  readonly log: Logger;
  /** Is told when the answer changed. */
  readonly onChange: () => void;
}

/** Asks the runtime every five seconds how it is, where it would not tell by itself. */
export function createRuntimeHealth({ runtime, clock, log, onChange }: RuntimeHealthDeps): RuntimeHealth {
  let status: StatusResponse | undefined;
  let version: VersionResponse | undefined;
  let lastAnswer: number | undefined;
  let failure: string | undefined;
  let versionDue = 0;
  /** Since when a question waits for an answer. */
  let askedAt: number | undefined;
  const first = Promise.withResolvers<void>();

  /** Nothing is wrong, and what had gone wrong since would have been heard. */
  const isHeard = () => {
    const heard = lastAnswer === undefined || problems().length > 0 ? undefined : runtime.heardAt?.();
    if (heard === undefined || clock.monotonic() - heard >= heardMs) return false;
    lastAnswer = Math.max(lastAnswer ?? heard, heard);
    return failure === undefined;
  };
  const readVersion = async (signal: AbortSignal): Promise<VersionResponse> => {
    if (version && failure === undefined && clock.monotonic() < versionDue) return version;
    const answer = await runtime.version(signal);
    versionDue = clock.monotonic() + versionEveryMs;
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
        log.info({ version: `${version.runtimeName} ${version.runtimeVersion}` }, "container runtime answers");
      failure = undefined;
    } catch (error) {
      if (signal.aborted) return;
      if (failure === undefined) log.warn({ err: error }, "container runtime does not answer, will keep trying");
      failure = messageOf(error);
    }
    if (problems().join() !== before) onChange();
  };
  const problems = (): readonly string[] => {
    const down = `container runtime is down${failure === undefined ? "" : `: ${failure}`}`;
    if (lastAnswer === undefined)
      return [failure === undefined ? "container runtime status check may not have completed yet" : down];
    const now = clock.monotonic();
    if (askedAt !== undefined && now - askedAt > patienceMs && now - lastAnswer > downAfterMs) return [down];
    return [unmet(status, "RuntimeReady", "container runtime"), networkError()].filter((text) => text !== undefined);
  };
  const networkError = () => (status ? unmet(status, "NetworkReady", "container runtime network") : undefined);

  const everyMs = () => (failure === undefined ? checkMs : impatientMs);
  const round = (signal: AbortSignal) => (isHeard() ? undefined : check(signal));
  return {
    ...patrol({ name: "runtime-health", everyMs, clock, log }, round),
    problems,
    networkError,
    version: () => version,
    answered: (signal) => Promise.race([first.promise, onAbort(signal)]),
    handlers: () => status?.runtimeHandlers ?? [],
    supplementalGroupsPolicy: () => status?.features?.supplementalGroupsPolicy === true,
  };
}

/** The kubelet's sentence for a condition that the runtime does not report as met; undefined when it does. */
function unmet(status: StatusResponse | undefined, type: string, what: string): string | undefined {
  const condition = status?.status?.conditions.find((each) => each.type === type);
  if (condition?.status) return undefined;
  return `${what} not ready: ${type}=false reason:${condition?.reason ?? ""} message:${condition?.message ?? ""}`;
}
