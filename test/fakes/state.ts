import { createRecords, type Column, type ColumnWriter } from "../../src/state/records.ts";
import { type NodeSignals, createSignals } from "../../src/state/signals.ts";

/** A column whose rows begin with their values. */
export function aColumn<T>(values: Readonly<Record<string, T>> = {}): ColumnWriter<T> {
  const { writer } = createRecords({ monotonic: () => 0 }).owner<T>("object");
  for (const [uid, value] of Object.entries(values)) writer.set(uid, value);
  return writer;
}

/** A column that shows what a test keeps elsewhere, by UID. */
export function columnOf<T>(values: () => Iterable<readonly [string, T]>): Column<T> {
  return {
    get: (uid) => new Map(values()).get(uid),
    list: () => [...new Map(values()).values()],
    entries: () => [...values()],
    onChange: () => () => undefined,
  };
}

/** Signals, and a line for each that was sent. */
export function signalLines(): NodeSignals & { readonly sent: string[] } {
  const sent: string[] = [];
  const signals = createSignals();
  signals.wakeWorker.subscribe((...of) => void sent.push(["wake", ...of].join(" ")));
  signals.retryFailedPods.subscribe(() => void sent.push("retry"));
  signals.terminatePod.subscribe(
    (uid, { graceSeconds, eviction }) => void sent.push(`end ${uid} ${graceSeconds} ${eviction?.reason}`),
  );
  signals.nodeChanged.subscribe(() => void sent.push("nodeChanged"));
  signals.mirrorsChanged.subscribe(() => void sent.push("mirrorsChanged"));
  signals.retryPendingResizes.subscribe((trigger) => void sent.push(`weigh ${trigger}`));
  return { ...signals, sent };
}
