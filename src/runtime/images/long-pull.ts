import type { Clock } from "../../lib/clock.ts";
import type { PullProgress } from "../../seams/runtime.ts";

/** When users are first told how far a pull is, and how often after that, milliseconds. */
const firstMs = 30_000;
const everyMs = 60_000;

export interface LongPull extends Disposable {
  /** For the runtime to call as often as it likes. */
  readonly onProgress: (progress: PullProgress) => void;
}

/** Tells of a pull that takes long, until it is disposed of. Says nothing where the runtime tells no progress.
 *  @param tell gets `12 of 340 MB, 2 of 7 layers`, without the sum while a layer's size is not known. */
export function watchLongPull(clock: Clock, tell: (howFar: string) => void): LongPull {
  let latest: PullProgress | undefined;
  const say = () => {
    if (latest) tell(howFar(latest));
    timer = clock.after(everyMs, say);
  };
  let timer = clock.after(firstMs, say);
  return {
    onProgress(progress) {
      latest = progress;
    },
    [Symbol.dispose]: () => timer.cancel(),
  };
}

function howFar({ bytes, totalBytes, layers, layersDone }: PullProgress): string {
  const of = totalBytes === undefined ? "" : ` of ${megabytes(totalBytes)}`;
  return `${megabytes(bytes)}${of} MB, ${layersDone} of ${layers} layers`;
}

function megabytes(bytes: number): number {
  return Math.round(bytes / 1e6);
}
