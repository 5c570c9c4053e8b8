/** Why a container was not started: what its Waiting state shows. */
export class StartError extends Error {
  /** The kubelet's reason: ErrImagePull, CreateContainerConfigError, CrashLoopBackOff and the like. */
  readonly reason: string;
  /** Milliseconds since the epoch: when another try is worth while, where a back-off decides. */
  readonly retryAt: number | undefined;
  constructor(reason: string, message: string, options: ErrorOptions & { readonly retryAt?: number } = {}) {
    super(message, options);
    this.name = "StartError";
    this.reason = reason;
    this.retryAt = options.retryAt;
  }
}
