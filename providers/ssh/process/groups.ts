import { hasCode } from "../../../src/lib/errors.ts";
import type { ClockAndLog } from "../../../src/lib/log.ts";
import type { Link } from "../connection/link.ts";
import { type ProcessGroup, killScript } from "../shell/shell.ts";
import type { ShellPool } from "../shell/shell-pool.ts";

/** Process groups that graftlet has started on the target. */
export type ProcessGroups = ReturnType<typeof createProcessGroups>;

export interface ProcessGroupsOptions extends ClockAndLog {
  readonly link: Link;
  readonly pool: () => Pick<ShellPool, "runUrgently">;
}

const killTimeoutMs = 20_000;
/** Limit of groups to be killed on the next connection. */
const maxLeftovers = 1000;

export function createProcessGroups({ link, pool, clock, log }: ProcessGroupsOptions) {
  const leftovers = new Set<ProcessGroup>();
  const remember = (group: ProcessGroup) => void (leftovers.size < maxLeftovers && leftovers.add(group));
  const send = async (groups: readonly ProcessGroup[], signal: "SIGTERM" | "SIGKILL"): Promise<void> => {
    const script = groups.map((group) => killScript(group, signal)).join("\n");
    await pool().runUrgently({ script, maxBytes: 0 }, clock.within(killTimeoutMs));
  };
  const sweep = async (): Promise<void> => {
    const groups = [...leftovers];
    if (groups.length === 0) return;
    leftovers.clear();
    try {
      await send(groups, "SIGKILL");
    } catch (err) {
      for (const group of groups) leftovers.add(group);
      if (!hasCode(err, "unavailable"))
        log.warn({ err }, "cannot kill processes of a lost connection; they may still be running");
    }
  };
  link.onChange(({ kind }) => {
    if (kind === "up") void sweep();
  });
  return {
    /** Signals a group without waiting for its end. If SIGKILL cannot be sent, the group is killed on the next connection. */
    kill(group: ProcessGroup, signal: "SIGTERM" | "SIGKILL"): void {
      void send([group], signal).catch((err: unknown) => {
        if (signal === "SIGKILL") remember(group);
        if (!hasCode(err, "unavailable")) log.warn({ err, group: group.id }, "cannot signal command");
      });
    },
    /** Registers a group to be killed on the next connection if its own connection is lost: the target may detect the loss of a
     *  half-open connection much later, and until then the group would keep its locks.
     *  @returns a function that deregisters the group. */
    killOnLoss(group: ProcessGroup, lost: AbortSignal): () => void {
      const onLost = () => remember(group);
      lost.addEventListener("abort", onLost, { once: true });
      return () => lost.removeEventListener("abort", onLost);
    },
  };
}
