/** The failure to start a container, as its Waiting state shows it. */
export class StartError extends Error {
  /** The kubelet's reason: ErrImagePull, CreateContainerConfigError, CrashLoopBackOff and the like. */
  readonly reason: string;
  /** End of the back-off, if any, in milliseconds since the epoch. */
  readonly retryAt: number | undefined;
  constructor(reason: string, message: string, options: ErrorOptions & { readonly retryAt?: number } = {}) {
    super(message, options);
    this.name = "StartError";
    this.reason = reason;
    this.retryAt = options.retryAt;
  }
}
