/** The failure to start a container, as its Waiting state shows it. */
export class StartError extends Error {
  /** The kubelet's reason: ErrImagePull, CreateContainerConfigError, CrashLoopBackOff and the like. */
  readonly reason: string;
  /** End of the back-off, if any, in milliseconds since the epoch. */
  readonly retryAt: number | undefined;
  /** ID of the container that the runtime answered it could not start; absent where no answer came. */
  readonly refused: string | undefined;
  constructor(reason: string, message: string, options: StartErrorOptions = {}) {
    super(message, options);
    this.name = "StartError";
    this.reason = reason;
    this.retryAt = options.retryAt;
    this.refused = options.refused;
  }
}

interface StartErrorOptions extends ErrorOptions {
  readonly retryAt?: number;
  readonly refused?: string | undefined;
}
