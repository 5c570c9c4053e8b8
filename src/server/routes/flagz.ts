import type { KubeletServerDeps } from "../ports.ts";
import { heading, separators, zpage } from "../zpages.ts";
import type { Handler } from "../responses.ts";

/** /flagz: the flags of the command line. */
export function flagz({ flags, clock }: Pick<KubeletServerDeps, "flags" | "clock">): Handler {
  const separator = separators[Math.floor(clock.jitter(0, separators.length))] ?? separators[0];
  const sorted = Object.entries(flags).sort(([one], [other]) => (one < other ? -1 : 1));
  const lines = sorted.map(([name, value]) => `${name}${separator}${value}\n`).join("");
  return zpage({
    name: "flagz",
    kind: "Flagz",
    text: () => heading("flagz") + lines,
    fields: () => (sorted.length === 0 ? {} : { flags: Object.fromEntries(sorted) }),
  });
}
