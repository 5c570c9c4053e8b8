/** Timeouts between the sides of a stream, milliseconds: the values of the kubelet's streaming server.
 *  @see https://github.com/kubernetes/cri-streaming */

/** A connection without any data ends after 4 hours. */
export const idleTimeoutMs = 4 * 60 * 60 * 1000;
/** Time for a client to open the streams it needs. */
export const streamCreationTimeoutMs = 30_000;
/** Time for a client to hang up after the last message. */
export const lingerTimeoutMs = 10_000;
