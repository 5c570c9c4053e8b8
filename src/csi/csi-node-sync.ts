import { messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { onAbort } from "../lib/runnables.ts";
import type { Node } from "../objects.ts";
import type { CsiNodes } from "./csi-node.ts";
import type { CsiDriverRegistry } from "./driver-registry.ts";

export interface CsiNodeSyncDeps extends ClockAndLog {
  readonly csiNodes: CsiNodes;
  readonly drivers: Pick<CsiDriverRegistry, "facts">;
  readonly nodes: {
    node(): Node | undefined;
    onChange(listener: (node: Node | undefined) => void): () => void;
  };
  /** Called when `problem` changes. */
  readonly onChange: () => void;
}

/** Retry delays, milliseconds, multiplied by eight each time. */
const initialRetryDelayMs = 30;
const maxRetryDelayMs = 30_000;
const factor = 8;

/** Creates the CSINode once the Node exists. If the Node is replaced, creates it again and adds the registered drivers. The node
 *  becomes Ready only then. */
export function createCsiNodeSync({ csiNodes, drivers, nodes, onChange, clock, log }: CsiNodeSyncDeps) {
  let problem: string | undefined = "CSINode is not yet initialized";
  let syncedUid = "";
  const setProblem = (why: string | undefined) => {
    if (problem === why) return;
    problem = why;
    onChange();
  };
  const initialize = async (uid: string, signal: AbortSignal) => {
    for (let ms = initialRetryDelayMs; !signal.aborted; ms = Math.min(ms * factor, maxRetryDelayMs)) {
      try {
        await csiNodes.initialize(signal);
        for (const [name, facts] of syncedUid === "" ? [] : drivers.facts())
          await csiNodes.install(name, facts, signal);
        syncedUid = uid;
        return setProblem(undefined);
      } catch (err) {
        if (signal.aborted) return;
        const why = `failed to initialize CSINode: ${messageOf(err)}`;
        if (why !== problem) log.warn({ err }, "cannot create CSINode; retrying");
        setProblem(why);
        await clock.sleep(ms, signal).catch(() => undefined);
      }
    }
  };
  return {
    name: "csi-node",
    /** Why the node is not Ready; undefined once the CSINode exists. */
    problem: () => problem,
    async run(signal: AbortSignal): Promise<void> {
      let changed = Promise.withResolvers<void>();
      const unsubscribe = nodes.onChange(() => changed.resolve());
      const ended = onAbort(signal);
      while (!signal.aborted) {
        changed = Promise.withResolvers<void>();
        const uid = nodes.node()?.metadata.uid;
        if (uid !== undefined && uid !== syncedUid) await initialize(uid, signal);
        else await Promise.race([changed.promise, ended]);
      }
      unsubscribe();
    },
  };
}
