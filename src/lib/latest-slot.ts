/** A slot for one key's work that keeps only the latest value: work is serial, and a failure affects this slot only. */
export class LatestSlot<T> {
  readonly #handle: (value: T) => Promise<void>;
  readonly #onError: (error: unknown) => void;
  #next: { readonly value: T } | undefined;
  #busy = false;
  #idle: PromiseWithResolvers<void> | undefined;

  /** @param handle does the work for one value; never runs concurrently.
   *  @param onError called with every rejection; the slot keeps working. */
  constructor(handle: (value: T) => Promise<void>, onError: (error: unknown) => void) {
    this.#handle = handle;
    this.#onError = onError;
  }

  /** Replaces the pending value, and starts working if idle. */
  put(value: T): void {
    this.#next = { value };
    if (!this.#busy) void this.#drain();
  }

  /** The pending value, for callers that merge a new request into an old one. */
  get pending(): T | undefined {
    return this.#next?.value;
  }

  get busy(): boolean {
    return this.#busy;
  }

  /** Resolves when nothing runs and nothing is pending. */
  idle(): Promise<void> {
    if (!this.#busy) return Promise.resolve();
    this.#idle ??= Promise.withResolvers<void>();
    return this.#idle.promise;
  }

  async #drain(): Promise<void> {
    this.#busy = true;
    try {
      for (let next = this.#take(); next; next = this.#take()) {
        try {
          await this.#handle(next.value);
        } catch (error) {
          this.#onError(error);
        }
      }
    } finally {
      // Cleared in the same turn as the empty take: clearing it later would lose a put.
      this.#busy = false;
      this.#idle?.resolve();
      this.#idle = undefined;
    }
  }

  #take(): { readonly value: T } | undefined {
    const next = this.#next;
    this.#next = undefined;
    return next;
  }
}
