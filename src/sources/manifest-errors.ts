import type { Logger } from "../lib/log.ts";
import type { EventSink } from "../pipeline.ts";
import { nodeReference } from "../pod/reference.ts";

/** Reports problems of manifests. A problem is reported once, and again only if it has changed or reappeared. */
export type ManifestErrors = ReturnType<typeof createManifestErrors>;

export function createManifestErrors(deps: {
  readonly nodeName: string;
  readonly events: EventSink;
  readonly log: Logger;
}) {
  const { nodeName, events, log } = deps;
  const reported = new Map<string, string>();
  const once = (of: string, text: string, say: () => void) => {
    if (reported.get(of) === text) return;
    reported.set(of, text);
    say();
  };
  return {
    /** Reports that a manifest is rejected. @param of source of the manifest, such as a file's path. */
    report(of: string, why: string) {
      once(of, why, () => {
        log.warn({ manifest: of, why }, "ignoring invalid static pod manifest");
        events.event(nodeReference(nodeName), "Warning", "InvalidManifest", `${of} is ignored: ${why}`);
      });
    },
    /** Reports that a part of an accepted manifest is ignored. */
    warn: (of: string, what: string) =>
      once(of, what, () => log.warn({ manifest: of, what }, "ignoring part of a static pod manifest")),
    /** Clears the problem of a manifest that is valid again, or gone. */
    clear(of: string) {
      if (reported.delete(of)) log.info({ manifest: of }, "static pod manifest is valid again");
    },
  };
}
