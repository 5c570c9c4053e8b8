import type { Session } from "node:inspector/promises";
import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";

export type ProfileKind = "cpu" | "heap";

/** Takes profiles of the process, which cover all of its nodes. */
export type Profiles = ReturnType<typeof createProfiles>;

/** Go's hundred samples per second, in microseconds. */
const cpuPeriodUs = 10_000;

/** Go's average of allocated bytes between samples. */
const heapPeriodBytes = 512 * 1024;

/** Creates the process's profiler. V8's profiler is loaded, and slows the process down, only while a profile is taken. */
export function createProfiles(clock: Clock) {
  const taken = new Set<ProfileKind>();
  return {
    /** Takes one profile of a kind at a time, for a duration, and compresses it.
     *  @throws CodedError failed_precondition while another profile of that kind is taken; the signal's reason if it aborts. */
    async take(kind: ProfileKind, durationMs: number, signal: AbortSignal): Promise<Buffer> {
      if (taken.has(kind)) throw new CodedError("failed_precondition", `${kind} profiling already in use`);
      taken.add(kind);
      try {
        const [inspector, encoding] = await Promise.all([
          import("node:inspector/promises"),
          import("./profile-encoding.ts"),
        ]);
        const session = new inspector.Session();
        // The session emits no errors: a failed call rejects.
        session.on("error", () => undefined);
        session.connect();
        // Disconnecting also stops a profile that was cut off.
        using _connected = { [Symbol.dispose]: () => session.disconnect() };
        const startedAt = clock.now();
        if (kind === "cpu") {
          await startCpuProfile(session);
          await clock.sleep(durationMs, signal);
          const { profile } = await session.post("Profiler.stop");
          return await encoding.encodeCpuProfile(profile, { startedAt, durationMs }, cpuPeriodUs);
        }
        await session.post("HeapProfiler.startSampling", { samplingInterval: heapPeriodBytes });
        await clock.sleep(durationMs, signal);
        const { profile } = await session.post("HeapProfiler.stopSampling");
        return await encoding.encodeHeapProfile(profile, { startedAt, durationMs }, heapPeriodBytes);
      } finally {
        taken.delete(kind);
      }
    },
  };
}

async function startCpuProfile(session: Session): Promise<void> {
  await session.post("Profiler.enable");
  await session.post("Profiler.setSamplingInterval", { interval: cpuPeriodUs });
  await session.post("Profiler.start");
}
