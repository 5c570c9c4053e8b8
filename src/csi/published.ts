import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { onAbort, type Service } from "../lib/service-group.ts";
import type { Node } from "../objects.ts";
import type { CsiNodes } from "./csi-node.ts";
import type { Drivers } from "./drivers.ts";

export interface PublishedDeps {
  readonly csiNodes: CsiNodes;
  readonly drivers: Pick<Drivers, "facts">;
  readonly nodes: {
    node(): Node | undefined;
    onChange(listener: (node: Node | undefined) => void): () => void;
  };
  /** Called when the node's problem changes. */
  readonly onChange: () => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The node's CSINode, which is there before the node is ready. */
export interface Published extends Service {
  /** Why the node is not ready; undefined once its CSINode is there. */
  problem(): string | undefined;
}

/** Pauses between tries, milliseconds: eight times longer each time. */
const firstRetryMs = 30;
const longestRetryMs = 30_000;
const factor = 8;

/** Makes the node's CSINode once there is a Node, and again for another Node of that name, which the registered drivers are shown in.
 *  A node is not ready without. */
export function createPublished({ csiNodes, drivers, nodes, onChange, clock, log }: PublishedDeps): Published {
  let problem: string | undefined = "CSINode is not yet initialized";
  let done = "";
  const say = (why: string | undefined) => {
    if (problem === why) return;
    problem = why;
    onChange();
  };
  const initialize = async (uid: string, signal: AbortSignal) => {
    for (let ms = firstRetryMs; !signal.aborted; ms = Math.min(ms * factor, longestRetryMs)) {
      try {
        await csiNodes.initialize(signal);
        for (const [name, facts] of done === "" ? [] : drivers.facts()) await csiNodes.install(name, facts, signal);
        done = uid;
        return say(undefined);
      } catch (err) {
        if (signal.aborted) return;
        const why = `failed to initialize CSINode: ${messageOf(err)}`;
        if (why !== problem) log.warn({ err }, "the node's CSINode could not be made, will keep trying");
        say(why);
        await clock.sleep(ms, signal).catch(() => undefined);
      }
    }
  };
  return {
    name: "csi-node",
    problem: () => problem,
    async run(signal) {
      let changed = Promise.withResolvers<void>();
      const unheard = nodes.onChange(() => changed.resolve());
      const ended = onAbort(signal);
      while (!signal.aborted) {
        changed = Promise.withResolvers<void>();
        const uid = nodes.node()?.metadata.uid;
        if (uid !== undefined && uid !== done) await initialize(uid, signal);
        else await Promise.race([changed.promise, ended]);
      }
      unheard();
    },
  };
}
