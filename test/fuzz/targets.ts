import { binaryTargets } from "./binary-targets.ts";
import { streamTargets } from "./stream-targets.ts";
import type { Target } from "./target.ts";
import { textTargets } from "./text-targets.ts";

/** All decoders that are fuzzed. */
export const targets: readonly Target[] = [...binaryTargets, ...textTargets, ...streamTargets];
