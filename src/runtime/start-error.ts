/** A failed container start, as shown by its Waiting state. */
export class StartError extends Error {
  /** The kubelet's reason: ErrImagePull, CreateContainerConfigError, CrashLoopBackOff and the like. */
  readonly reason: string;
  /** End of the back-off, if any, in milliseconds since the epoch. */
  readonly retryAt: number | undefined;
  /** ID of the container that the runtime reported it could not start; absent if it did not answer. */
  readonly refused: string | undefined;
  constructor(
    reason: string,
    message: string,
    options: ErrorOptions & { readonly retryAt?: number; readonly refused?: string | undefined } = {},
  ) {
    super(message, options);
    this.name = "StartError";
    this.reason = reason;
    this.retryAt = options.retryAt;
    this.refused = options.refused;
  }
}
