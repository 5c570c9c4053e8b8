import type { Logger } from "../lib/log.ts";
import type { EventSink } from "../pipeline.ts";
import { nodeReference } from "../pod/reference.ts";

/** Reports problems of manifests: each once, until it changes or is fixed. */
export interface Complaints {
  /** The manifest is refused. @param of its source, such as a file's path. */
  tell(of: string, why: string): void;
  /** The manifest is accepted, except for a part. */
  remark(of: string, what: string): void;
  /** The manifest is valid, or gone. */
  settle(of: string): void;
}

export function createComplaints(deps: {
  readonly nodeName: string;
  readonly events: EventSink;
  readonly log: Logger;
}): Complaints {
  const { nodeName, events, log } = deps;
  const told = new Map<string, string>();
  const once = (of: string, text: string, say: () => void) => {
    if (told.get(of) === text) return;
    told.set(of, text);
    say();
  };
  return {
    tell(of, why) {
      once(of, why, () => {
        log.warn({ manifest: of, why }, "a manifest of static pods is ignored");
        events.event(nodeReference(nodeName), "Warning", "ManifestIgnored", `${of} is ignored: ${why}`);
      });
    },
    remark: (of, what) => once(of, what, () => log.warn({ manifest: of, what }, "a part of a manifest is ignored")),
    settle(of) {
      if (told.delete(of)) log.info({ manifest: of }, "nothing is wrong with a manifest any more");
    },
  };
}
