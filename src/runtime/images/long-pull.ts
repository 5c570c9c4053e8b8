import type { Clock } from "../../lib/clock.ts";
import type { PullProgress } from "../../seams/runtime.ts";

/** Delay of the first progress event of a pull, and interval of the following ones, milliseconds. */
const firstMs = 30_000;
const everyMs = 60_000;

export interface LongPull extends Disposable {
  /** Callback for the runtime; may be called at any rate. */
  readonly onProgress: (progress: PullProgress) => void;
}

/** Reports the progress of a long pull until disposed; silent if the runtime reports no progress.
 *  @param tell gets `12 of 340 MB, 2 of 7 layers`, without the total while a layer's size is unknown. */
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
