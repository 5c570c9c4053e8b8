import type { ClockAndLog } from "../lib/log.ts";
import type { Runtime } from "../seams/runtime.ts";
import type { LogHost } from "./log-file.ts";

export interface LogReaderDeps extends ClockAndLog {
  readonly host: LogHost;
  /** Directories of log files on the target (KubeletConfiguration.podLogsDir). */
  readonly roots: readonly string[];
  /** Names the runtime's own log directories, and returns the lines of a log whose file is not accessible. */
  readonly runtime: Pick<Runtime, "logRoots" | "logs">;
  /** True while the container runs. not_found counts as false; unavailable as true, since containers outlive their runtime. */
  readonly isRunning: (containerId: string, signal: AbortSignal) => Promise<boolean>;
}
