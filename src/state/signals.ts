import type { WakeCause } from "../pipeline.ts";
import type { ResizeTrigger } from "../resizes.ts";
import type { Ending } from "./pod-table.ts";

/** A named call from one actor to another. It carries no state: its hearers look at the columns. A signal that is sent twice,
 *  or without a hearer, does no harm. */
export interface Signal<A extends readonly unknown[]> {
  send(...args: A): void;
  /** @returns ends the calls. */
  heard(hear: (...args: A) => void): () => void;
}

/** Signals of a node, made before the actors that send and hear them. */
export interface NodeSignals {
  /** A pod's worker has something to look at. */
  readonly wake: Signal<[uid: string, cause: WakeCause]>;
  /** The runtime answers again, or Services have been read for the first time: what failed for want of it is tried again at once. */
  readonly retry: Signal<[]>;
  /** A pod that is meant to run is to end. */
  readonly end: Signal<[uid: string, ending: Ending]>;
  /** The Node's status may have changed. */
  readonly nodeChanged: Signal<[]>;
  /** A static pod, a mirror pod, a worker's phase, the Node or the sources have changed. */
  readonly mirrorsChanged: Signal<[]>;
  /** Pending resizes may be decided otherwise now. */
  readonly weigh: Signal<[trigger: ResizeTrigger]>;
}

/** Sending ends of some signals. */
export type Sends<Name extends keyof NodeSignals> = { readonly [N in Name]: Pick<NodeSignals[N], "send"> };
/** Hearing ends of some signals. */
export type Hears<Name extends keyof NodeSignals> = { readonly [N in Name]: Pick<NodeSignals[N], "heard"> };

/** All signals of a node, heard by none. */
export function createSignals(): NodeSignals {
  return {
    wake: createSignal(),
    retry: createSignal(),
    end: createSignal(),
    nodeChanged: createSignal(),
    mirrorsChanged: createSignal(),
    weigh: createSignal(),
  };
}

/** A signal, heard by none. */
export function createSignal<A extends readonly unknown[]>(): Signal<A> {
  const hearers = new Set<(...args: A) => void>();
  return {
    send: (...args) => hearers.forEach((hear) => hear(...args)),
    heard(hear) {
      hearers.add(hear);
      return () => void hearers.delete(hear);
    },
  };
}
