import { codeOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { MissingRights, Target, TargetFeature } from "../seams/provider.ts";

/** What graftlet may not do on the target, kept at hand. */
export interface TargetRights {
  /** Asks the target; what was last known stays where it does not answer. */
  read(signal: AbortSignal): Promise<MissingRights | "whole" | undefined>;
  /** Why pods cannot have a feature on this target; undefined where they can, and before the first answer. */
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
