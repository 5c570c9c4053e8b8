import { replaceFile } from "../host/replace-file.ts";
import type { Logger } from "../lib/log.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";

/** Shutdowns of the machine. Times are milliseconds since the epoch, 0 for none. */
export interface ShutdownMeasures {
  began(at: number): void;
  ended(at: number): void;
}

export interface ShutdownRecordDeps {
  readonly fs: Pick<HostFs, "apply" | "readFile">;
  /** Absolute path of the record. */
  readonly file: string;
  readonly measures: ShutdownMeasures;
  readonly log: Logger;
}

const goZeroTime = "0001-01-01T00:00:00Z";

/** Start and end of the node's last shutdown, on the target and in /metrics. Read and write failures are logged and block nothing. Keeps
 *  the record in the kubelet's format. (kubelet, nodeshutdown/storage.go) */
export function createShutdownRecord({ fs, file, measures, log }: ShutdownRecordDeps) {
  let startedAt = 0;
  const store = async (endedAt: number | undefined, signal: AbortSignal) => {
    const state = {
      startTime: formatTime(startedAt),
      endTime: endedAt === undefined ? goZeroTime : formatTime(endedAt),
    };
    await fs.apply(replaceFile(file, JSON.stringify(state), 0o644), signal).catch((err: unknown) => {
      log.error({ err }, "Failed to store graceful shutdown state");
    });
  };
  return {
    /** Publishes the previous shutdown's times when the node starts. */
    async load(signal: AbortSignal) {
      try {
        const stored = await ignoreNotFound(fs.readFile(file, { maxBytes: 4096, signal }));
        if (!stored) return;
        const { startTime, endTime } = JSON.parse(stored.toString("utf8")) as Record<string, unknown>;
        measures.began(parseTime(startTime));
        measures.ended(parseTime(endTime));
      } catch (err) {
        if (!signal.aborted) log.error({ err }, "Failed to load graceful shutdown state");
      }
    },
    /** @param at milliseconds since the epoch. */
    async recordStart(at: number, signal: AbortSignal) {
      startedAt = at;
      measures.began(at);
      measures.ended(0);
      await store(undefined, signal);
    },
    async recordEnd(at: number, signal: AbortSignal) {
      measures.ended(at);
      await store(at, signal);
    },
  };
}

function formatTime(ms: number): string {
  return new Date(ms).toISOString();
}

/** Milliseconds since the epoch; 0 for Go's zero time and invalid text. */
function parseTime(text: unknown): number {
  const ms = typeof text === "string" && text !== goZeroTime ? Date.parse(text) : 0;
  return Number.isNaN(ms) ? 0 : ms;
}
