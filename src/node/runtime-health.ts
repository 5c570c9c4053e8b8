import type { RuntimeHandler, StatusResponse, VersionResponse } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import type { Runtime } from "../seams/runtime.ts";

const checkMs = 5_000;
/** While the runtime has never answered, or has just gone: look often, so that it is noticed when it comes. */
const impatientMs = 1_000;
/** The runtime may be silent this long before the node says so. */
const downAfterMs = 30_000;

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
  readonly runtime: Pick<Runtime, "status" | "version">;
  readonly clock: Clock;
  readonly log: Logger;
  /** Is told when the answer changed. */
  readonly onChange: () => void;
}

/** Asks the runtime every five seconds how it is. */
export function createRuntimeHealth({ runtime, clock, log, onChange }: RuntimeHealthDeps): RuntimeHealth {
  let status: StatusResponse | undefined;
  let version: VersionResponse | undefined;
  let lastAnswer: number | undefined;
  let failure: string | undefined;
  const first = Promise.withResolvers<void>();

  const check = async (signal: AbortSignal) => {
    const before = problems().join();
    try {
      version = await runtime.version(signal);
      status = await runtime.status(signal);
      lastAnswer = clock.monotonic();
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
    if (clock.monotonic() - lastAnswer > downAfterMs) return [down];
    return [unmet(status, "RuntimeReady", "container runtime"), networkError()].filter((text) => text !== undefined);
  };
  const networkError = () => (status ? unmet(status, "NetworkReady", "container runtime network") : undefined);

  return {
    name: "runtime-health",
    problems,
    networkError,
    version: () => version,
    answered: (signal) => Promise.race([first.promise, onAbort(signal)]),
    handlers: () => status?.runtimeHandlers ?? [],
    supplementalGroupsPolicy: () => status?.features?.supplementalGroupsPolicy === true,
    async run(signal) {
      while (!signal.aborted) {
        await check(signal);
        await clock.sleep(failure === undefined ? checkMs : impatientMs, signal).catch(() => undefined);
      }
    },
  };
}

/** The kubelet's sentence for a condition that the runtime does not report as met; undefined when it does. */
function unmet(status: StatusResponse | undefined, type: string, what: string): string | undefined {
  const condition = status?.status?.conditions.find((each) => each.type === type);
  if (condition?.status) return undefined;
  return `${what} not ready: ${type}=false reason:${condition?.reason ?? ""} message:${condition?.message ?? ""}`;
}
