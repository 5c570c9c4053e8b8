/** When a call of a storage driver stops: before it does anything, as if it had never been called; while it works, and others for the
 *  volume are refused; or when its work is done, and the node does not know. */
export type CallMoment = "before" | "within" | "after";

/** Calls of one method that stop at a moment. */
export interface Stop {
  /** True once a call for each of the volumes has come there. */
  isReached(): boolean;
  /** Lets them go on. */
  release(): void;
}

/** The stops of a test driver's calls. */
export interface Stops {
  stopAt(moment: CallMoment, method: string, volumes: readonly string[]): Stop;
  /** Does a call's work, unless it has to stop. @throws Pending while another call works on the volume. */
  around(method: string, volume: string, work: () => unknown): Promise<unknown>;
}

/** Another call for the volume is under way. */
export class Pending extends Error {}

/** The node that made the call is no more. */
export class Lost extends Error {}

export function createStops(): Stops {
  const waiting = new Map<string, { readonly moment: CallMoment; come(): Promise<void> }>();
  const working = new Set<string>();
  const within = async (volume: string, stopped: Promise<void>, work: () => unknown): Promise<unknown> => {
    working.add(volume);
    try {
      await stopped;
      return await work();
    } finally {
      working.delete(volume);
    }
  };
  return {
    stopAt(moment, method, volumes) {
      const left = new Set(volumes);
      const released = Promise.withResolvers<void>();
      for (const volume of volumes)
        waiting.set(`${method} ${volume}`, {
          moment,
          come() {
            waiting.delete(`${method} ${volume}`);
            left.delete(volume);
            return released.promise;
          },
        });
      return { isReached: () => left.size === 0, release: released.resolve };
    },
    async around(method, volume, work) {
      if (working.has(volume)) throw new Pending(`${method} ${volume}: an operation is pending`);
      const stop = waiting.get(`${method} ${volume}`);
      switch (stop?.moment) {
        case undefined:
          return work();
        case "before":
          await stop.come();
          throw new Lost("the node is gone");
        case "within":
          return within(volume, stop.come(), work);
        case "after": {
          const done = await work();
          await stop.come();
          return done;
        }
      }
    },
  };
}
