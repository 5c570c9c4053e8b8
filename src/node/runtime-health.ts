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

/** Asks the runtime every five seconds how it is. @param onChange is told when the answer changed. */
export function createRuntimeHealth({ runtime, clock, log, onChange }: { runtime: Pick<Runtime, "status" | "version">; clock: Clock; log: Logger; onChange: () => void }): RuntimeHealth {
  let status: StatusResponse | undefined;
  let version: VersionResponse | undefined;
  let lastAnswer: number | undefined;
  let failure: string | undefined;
  const first = Promise.withResolvers<void>();
  const condition = (type: string) => status?.status?.conditions.find((each) => each.type === type);

  const check = async (signal: AbortSignal) => {
    const before = problems().join();
    try {
      version = await runtime.version(signal);
      status = await runtime.status(signal);
      lastAnswer = clock.monotonic();
      first.resolve();
      if (failure !== undefined) log.info({ version: `${version.runtimeName} ${version.runtimeVersion}` }, "container runtime answers");
      failure = undefined;
    } catch (error) {
      if (signal.aborted) return;
      if (failure === undefined) log.warn({ err: error }, "container runtime does not answer, will keep trying");
      failure = messageOf(error);
    }
    if (problems().join() !== before) onChange();
  };

  const problems = (): readonly string[] => {
    if (lastAnswer === undefined) return [failure === undefined ? "container runtime status check may not have completed yet" : `container runtime is down: ${failure}`];
    if (clock.monotonic() - lastAnswer > downAfterMs) return [`container runtime is down${failure === undefined ? "" : `: ${failure}`}`];
    const ready = condition("RuntimeReady");
    const unready = ready?.status ? [] : [`container runtime not ready: RuntimeReady=false reason:${ready?.reason ?? ""} message:${ready?.message ?? ""}`];
    const network = networkError();
    return [...unready, ...(network === undefined ? [] : [network])];
  };

  const networkError = () => {
    const network = condition("NetworkReady");
    if (status === undefined || network?.status) return undefined;
    return `container runtime network not ready: NetworkReady=false reason:${network?.reason ?? ""} message:${network?.message ?? ""}`;
  };

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
