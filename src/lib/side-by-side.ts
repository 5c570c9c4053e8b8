import { CodedError } from "./errors.ts";

/** Runs several pieces of work at once. When one fails, the others are aborted and awaited.
 *  @throws the first failure, when all have ended. */
export async function sideBySide(
  works: readonly ((signal: AbortSignal) => Promise<void>)[],
  signal: AbortSignal,
): Promise<void> {
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  let first: { readonly error: unknown } | undefined;
  const run = async (work: (stop: AbortSignal) => Promise<void>) => {
    try {
      await work(either);
    } catch (error) {
      first ??= { error };
      failed.abort(new CodedError("cancelled", "something else has failed meanwhile"));
    }
  };
  await Promise.all(works.map(run));
  if (first) throw first.error;
}
