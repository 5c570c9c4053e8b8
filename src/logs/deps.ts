import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Runtime } from "../seams/runtime.ts";
import type { LogHost } from "./file.ts";

export interface LogReaderDeps {
  readonly host: LogHost;
  readonly clock: Clock;
  readonly log: Logger;
  /** Directories on the target in which log files may lie (KubeletConfiguration.podLogsDir). */
  readonly roots: readonly string[];
  /** Names the directories in which it keeps log files itself; gives the lines of a log whose file is not for us to read. */
  readonly runtime: Pick<Runtime, "logRoots" | "logs">;
  /** True while the container runs. not_found counts as no; unavailable as yes, since containers outlive their runtime. */
  readonly isRunning: (containerId: string, signal: AbortSignal) => Promise<boolean>;
}
