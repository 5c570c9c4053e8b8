/** A decoder that takes bytes of others. */
export interface Target {
  readonly name: string;
  /** Valid inputs, which are mutated. */
  readonly samples: readonly Buffer[];
  /** Decodes an input. It may throw an Error that says what is wrong with the input. */
  readonly decode: (input: Buffer) => unknown;
}
