import { CodedError } from "./errors.ts";

type Task<Result> = (signal: AbortSignal) => Promise<Result>;

/** Runs tasks concurrently, like an errgroup. When one fails the others are aborted, and their end is awaited.
 *  @returns their results, in the same order. @throws the first failure, once all have ended. */
export async function runConcurrently<Results extends readonly unknown[] | []>(
  tasks: { readonly [At in keyof Results]: Task<Results[At]> },
  signal: AbortSignal,
): Promise<Results> {
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  let first: { readonly error: unknown } | undefined;
  const run = async (work: Task<unknown>): Promise<unknown> => {
    try {
      return await work(either);
    } catch (error) {
      first ??= { error };
      failed.abort(new CodedError("cancelled", "another task failed"));
      return undefined;
    }
  };
  const results = await Promise.all(tasks.map(run));
  if (first) throw first.error;
  return results as unknown as Results;
}
