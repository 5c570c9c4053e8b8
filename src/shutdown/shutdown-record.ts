import { replaceFile } from "../host/replace-file.ts";
import type { Logger } from "../lib/log.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import type { ShutdownMeasures } from "../measures.ts";
import type { HostFs } from "../seams/host.ts";

export interface ShutdownRecordDeps {
  readonly fs: Pick<HostFs, "apply" | "readFile">;
  /** Absolute path of the record. */
  readonly file: string;
  readonly measures: ShutdownMeasures;
  readonly log: Logger;
}

/** Start and end of the node's last shutdown, on the target and in /metrics. Read and write failures are logged and block nothing. */
export interface ShutdownRecord {
  /** Publishes the previous shutdown's times when the node starts. */
  load(signal: AbortSignal): Promise<void>;
  /** @param at milliseconds since the epoch. */
  began(at: number, signal: AbortSignal): Promise<void>;
  ended(at: number, signal: AbortSignal): Promise<void>;
}

/** Go's zero time. */
const noTime = "0001-01-01T00:00:00Z";

/** Keeps the record in the kubelet's format. (kubelet, nodeshutdown/storage.go) */
export function createShutdownRecord({ fs, file, measures, log }: ShutdownRecordDeps): ShutdownRecord {
  let startedAt = 0;
  const store = async (endedAt: number | undefined, signal: AbortSignal) => {
    const state = { startTime: timeText(startedAt), endTime: endedAt === undefined ? noTime : timeText(endedAt) };
    await fs.apply(replaceFile(file, JSON.stringify(state), 0o644), signal).catch((err: unknown) => {
      log.error({ err }, "Failed to store graceful shutdown state");
    });
  };
  return {
    async load(signal) {
      try {
        const kept = await ignoreNotFound(fs.readFile(file, { maxBytes: 4096, signal }));
        if (!kept) return;
        const { startTime, endTime } = JSON.parse(kept.toString("utf8")) as Record<string, unknown>;
        measures.began(timeOf(startTime));
        measures.ended(timeOf(endTime));
      } catch (err) {
        if (!signal.aborted) log.error({ err }, "Failed to load graceful shutdown state");
      }
    },
    async began(at, signal) {
      startedAt = at;
      measures.began(at);
      measures.ended(0);
      await store(undefined, signal);
    },
    async ended(at, signal) {
      measures.ended(at);
      await store(at, signal);
    },
  };
}

function timeText(ms: number): string {
  return new Date(ms).toISOString();
}

/** Milliseconds since the epoch; 0 for Go's zero time and invalid text. */
function timeOf(text: unknown): number {
  const ms = typeof text === "string" && text !== noTime ? Date.parse(text) : 0;
  return Number.isNaN(ms) ? 0 : ms;
}
