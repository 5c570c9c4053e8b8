import { createBoundedMap } from "../../lib/bounded-map.ts";
import type { Clock } from "../../lib/clock.ts";
import { CodedError, hasCode, throwIfAborted, ignoreCode, ignoreNotFound } from "../../lib/errors.ts";
import { untilAborted } from "../../lib/runnables.ts";
import type { SystemdBus } from "./bus.ts";
import type { SliceUnits, UnitProperty } from "./slices.ts";

/** Maximum number of remembered jobs that ended before their call was answered. */
const maxEndedJobs = 1_000;
/** Timeout for systemd to start or stop a slice, milliseconds. */
const jobTimeoutMs = 30_000;

/** Manages slices through systemd's D-Bus API. */
export function busSlices(bus: SystemdBus, clock: Clock): SliceUnits {
  const forgetFailure = (slice: string, signal: AbortSignal) =>
    bus.call({ member: "ResetFailedUnit", signature: "s", body: [slice] }, signal).catch(() => throwIfAborted(signal));
  const startOnce = (slice: string, properties: readonly UnitProperty[], signal: AbortSignal) =>
    runJob(
      { bus, clock },
      () =>
        bus.call(
          {
            member: "StartTransientUnit",
            signature: "ssa(sv)a(sa(sv))",
            body: [slice, "replace", properties.map(asVariant), []],
          },
          signal,
        ),
      signal,
    );
  return {
    async version(signal) {
      const interfaceName = "org.freedesktop.DBus.Properties";
      const body = ["org.freedesktop.systemd1.Manager", "Version"];
      return versionOf(String(await bus.call({ interfaceName, member: "Get", signature: "ss", body }, signal)));
    },
    async start(slice, properties, signal) {
      const isNew = ignoreCode(startOnce(slice, properties, signal), "already_exists");
      const result = await isNew.catch(async (error: unknown) => {
        if (hasCode(error, "deadline_exceeded")) await forgetFailure(slice, signal);
        throw error;
      });
      if (result === undefined) return false;
      if (result === "done") return true;
      await forgetFailure(slice, signal);
      const again = await ignoreCode(startOnce(slice, properties, signal), "already_exists");
      if (again === undefined) return false;
      if (again === "done") return true;
      await forgetFailure(slice, signal);
      throw new CodedError("failed_precondition", `systemd cannot start ${slice}: its job ended with result ${again}`);
    },
    async set(slice, properties, signal) {
      const body = [slice, true, properties.map(asVariant)];
      await bus.call({ member: "SetUnitProperties", signature: "sba(sv)", body }, signal);
    },
    async stop(slice, signal) {
      const call = () => bus.call({ member: "StopUnit", signature: "ss", body: [slice, "replace"] }, signal);
      await ignoreNotFound(runJob({ bus, clock }, call, signal));
      await forgetFailure(slice, signal);
    },
  };
}

function asVariant({ name, type, value }: UnitProperty): readonly unknown[] {
  return [name, [type, value]];
}

/** Major version number in a text such as `252.38-1~deb12u1` or `v245.4-1.fc32`; 0 for any other text. */
export function versionOf(text: string): number {
  return Number(/^"?v?(\d+)/.exec(text)?.[1] ?? 0);
}

/** Runs a job and returns its result. The job may end before the call that started it is answered. @throws deadline_exceeded
 *  on timeout; unavailable if the connection is lost. */
async function runJob(
  { bus, clock }: { readonly bus: SystemdBus; readonly clock: Clock },
  begin: () => Promise<unknown>,
  signal: AbortSignal,
): Promise<string> {
  const ended = createBoundedMap<string>(maxEndedJobs);
  let awaited: { readonly job: string; readonly resolve: (result: string) => void } | undefined;
  const stop = bus.onJobEnd(({ job, result }) => {
    if (awaited?.job === job) awaited.resolve(result);
    else ended.set(job, result);
  });
  try {
    const job = String(await begin());
    const early = ended.get(job);
    if (early !== undefined) return early;
    const end = new Promise<string>((resolve) => (awaited = { job, resolve }));
    return await untilAborted(untilAborted(end, bus.lost), clock.within(jobTimeoutMs, signal));
  } finally {
    stop();
  }
}
