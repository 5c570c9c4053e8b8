import type { Clock } from "../../lib/clock.ts";
import type { PullProgress } from "../../seams/runtime.ts";

/** Delay of the first progress event of a pull, and interval of the following ones, milliseconds. */
const firstReportMs = 30_000;
const reportIntervalMs = 60_000;

/** Reports the progress of a long pull until disposed; silent if the runtime reports no progress.
 *  @param report gets `12 of 340 MB, 2 of 7 layers`, without the total while a layer's size is unknown. */
export function watchLongPull(clock: Clock, report: (howFar: string) => void) {
  let latest: PullProgress | undefined;
  const reportProgress = () => {
    if (latest) report(progressText(latest));
    timer = clock.after(reportIntervalMs, reportProgress);
  };
  let timer = clock.after(firstReportMs, reportProgress);
  return {
    /** Callback for the runtime; may be called at any rate. */
    onProgress(progress: PullProgress) {
      latest = progress;
    },
    [Symbol.dispose]: () => timer.cancel(),
  };
}

function progressText({ bytes, totalBytes, layers, layersDone }: PullProgress): string {
  const of = totalBytes === undefined ? "" : ` of ${megabytes(totalBytes)}`;
  return `${megabytes(bytes)}${of} MB, ${layersDone} of ${layers} layers`;
}

function megabytes(bytes: number): number {
  return Math.round(bytes / 1e6);
}
