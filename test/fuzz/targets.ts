import { binaryTargets } from "./binary-targets.ts";
import { streamTargets } from "./stream-targets.ts";
import { textTargets } from "./text-targets.ts";

/** A decoder that takes bytes of others. */
export interface Target {
  readonly name: string;
  /** Valid inputs, which are mutated. */
  readonly samples: readonly Buffer[];
  /** Decodes an input. It may throw an Error that says what is wrong with the input. */
  readonly decode: (input: Buffer) => unknown;
}

export const targets: readonly Target[] = [...binaryTargets, ...textTargets, ...streamTargets];
