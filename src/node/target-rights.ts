import { codeOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { MissingRights, Target, TargetFeature } from "../seams/provider.ts";

/** Cache of the privileges that graftlet lacks on the target. */
export interface TargetRights {
  /** Reads the privileges from the target; if it does not respond, the last known ones are returned. */
  read(signal: AbortSignal): Promise<MissingRights | "whole" | undefined>;
  /** Why pods cannot use a feature on this target; undefined if they can, and before the first read. */
  lacks(feature: TargetFeature): string | undefined;
}

export function createTargetRights(
  target: Pick<Target, "missingRights">,
  { log }: { readonly log: Logger },
): TargetRights {
  let known: MissingRights | undefined;
  return {
    async read(signal) {
      if (!target.missingRights) return "whole";
      try {
        const now = await target.missingRights(signal);
        for (const sentence of now.sentences) if (!known?.sentences.includes(sentence)) log.warn({}, sentence);
        known = now;
      } catch (error) {
        if (!signal.aborted) log.debug({ err: error, code: codeOf(error) }, "cannot read the privileges on the target");
      }
      return known;
    },
    lacks: (feature) => known?.lacks[feature],
  };
}
