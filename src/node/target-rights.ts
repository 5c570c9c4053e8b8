import { codeOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { MissingPrivileges, Target, TargetFeature } from "../seams/provider.ts";

/** Cache of the privileges that graftlet lacks on the target. */
export type TargetRights = ReturnType<typeof createTargetRights>;

export function createTargetRights(target: Pick<Target, "missingPrivileges">, { log }: { readonly log: Logger }) {
  let known: MissingPrivileges | undefined;
  return {
    /** Reads the privileges from the target; if it does not respond, the last known ones are returned. */
    async read(signal: AbortSignal) {
      if (!target.missingPrivileges) return "whole";
      try {
        const now = await target.missingPrivileges(signal);
        for (const sentence of now.messages) if (!known?.messages.includes(sentence)) log.warn({}, sentence);
        known = now;
      } catch (error) {
        if (!signal.aborted) log.debug({ err: error, code: codeOf(error) }, "cannot read the privileges on the target");
      }
      return known;
    },
    /** Why pods cannot use a feature on this target; undefined if they can, and before the first read. */
    lacks: (feature: TargetFeature) => known?.unsupported[feature],
  };
}
