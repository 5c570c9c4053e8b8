import type { Clock } from "../lib/clock.ts";
import { pause } from "../lib/pause.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { ReportedNode } from "../report/reported-node.ts";

/** Calls `work`, which may start a node, when it is the node's turn. @param work returns true if it has started the node. */
export type StartInTurn = (
  work: () => Promise<boolean>,
  report: Pick<ReportedNode, "introspection" | "progress" | "onChange">,
  signal: AbortSignal,
) => Promise<void>;

/** Number of nodes that start at the same time. */
const parallel = 16;
/** Time after which a node that is not Ready gives up its turn, milliseconds: a machine that does not respond must not delay others. */
const longestTurnMs = 5_000;

/** Lets the nodes of a fleet start a few at a time. Hundreds at once would overload the API server, and their requests would time out and be
 *  repeated. A turn lasts until the node is Ready or reports a problem. */
export function createStarts(clock: Pick<Clock, "sleep">): StartInTurn {
  const inTurn = createSemaphore(parallel);
  return (work, report, signal) => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const turn = async () => {
      const hasStarted = await work();
      resolve();
      if (hasStarted) await untilStarted(clock, report, signal);
    };
    inTurn(turn, signal).catch(reject);
    return promise;
  };
}

async function untilStarted(
  clock: Pick<Clock, "sleep">,
  report: Parameters<StartInTurn>[1],
  signal: AbortSignal,
): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const look = () => {
    const conditions = report.introspection()?.node()?.status?.conditions;
    const isReady = conditions?.some(({ type, status }) => type === "Ready" && status === "True");
    if (isReady || report.progress().trouble) resolve();
  };
  const unsubscribe = report.onChange(look);
  look();
  await pause(clock, longestTurnMs, promise, signal);
  unsubscribe();
}
