/** A moment of a call, named by its method: `before RunPodSandbox` the runtime has not seen the request, `during` it has been
 *  given it, `after` it has answered and the agent has not heard. */
export type Moment = `${"before" | "during" | "after"} ${string}`;

/** Stands between an agent and its runtime, passes everything on as bytes, and can be told to stop at a moment. */
export interface RuntimeProxy extends AsyncDisposable {
  /** The socket that the agent is given as its runtime's. */
  readonly socket: string;
  /** At the next call of that moment `act` runs, and what it held up (a request, an answer) is dropped when the moment is
   *  `before` or `after`. Resolves when `act` has; rejects with its error. One moment at a time. */
  stopAt(moment: Moment, act: () => Promise<void>): Promise<void>;
}

/** Where a proxy listens, and the runtime that it passes calls on to; unix sockets. */
export interface ProxySockets {
  readonly socket: string;
  readonly upstream: string;
}

/** What a proxy of either kind does at a moment. */
export interface Trap extends Pick<RuntimeProxy, "stopAt"> {
  /** Springs if it is set for this moment. @returns whether it was. */
  at(moment: Moment): Promise<boolean>;
}

export function createTrap(): Trap {
  let set: { readonly moment: Moment; spring(): Promise<void> } | undefined;
  return {
    async at(moment) {
      if (set?.moment !== moment) return false;
      const { spring } = set;
      set = undefined;
      await spring();
      return true;
    },
    stopAt(moment, act) {
      if (set) throw new Error(`the proxy waits for "${set.moment}" already`);
      return new Promise((resolve, reject) => {
        set = {
          moment,
          spring: async () => {
            await act().then(resolve, reject);
          },
        };
      });
    },
  };
}
