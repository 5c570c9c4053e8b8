import type { Logger } from "../lib/log.ts";
import type { EventSink } from "../pipeline.ts";
import { nodeReference } from "../pod/reference.ts";

/** Reports problems of manifests: each once, until it changes or is fixed. */
export interface Complaints {
  /** Reports that a manifest is rejected. @param of its source, such as a file's path. */
  tell(of: string, why: string): void;
  /** Reports that a part of an accepted manifest is ignored. */
  remark(of: string, what: string): void;
  /** Clears the problem of a manifest that is valid again, or gone. */
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
        log.warn({ manifest: of, why }, "ignoring invalid static pod manifest");
        events.event(nodeReference(nodeName), "Warning", "ManifestIgnored", `${of} is ignored: ${why}`);
      });
    },
    remark: (of, what) =>
      once(of, what, () => log.warn({ manifest: of, what }, "ignoring part of a static pod manifest")),
    settle(of) {
      if (told.delete(of)) log.info({ manifest: of }, "static pod manifest is valid again");
    },
  };
}
