import { codeOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { MissingRights, Target, TargetFeature } from "../seams/provider.ts";

/** Cache of the rights that graftlet lacks on the target. */
export interface TargetRights {
  /** Reads the rights from the target; the last known ones stay when it does not answer. */
  read(signal: AbortSignal): Promise<MissingRights | "whole" | undefined>;
  /** Reason that pods cannot have a feature on this target; undefined when they can, and before the first answer. */
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
        if (!signal.aborted) log.debug({ err: error, code: codeOf(error) }, "the target's rights could not be read");
      }
      return known;
    },
    lacks: (feature) => known?.lacks[feature],
  };
}
