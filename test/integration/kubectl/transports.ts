/** The two ways in which kubectl speaks to the API server: WebSocket, and SPDY as older versions do.
 *  @see https://kubernetes.io/docs/reference/kubectl/kubectl/#environment-variables */
export const transports = [
  { name: "WebSocket", env: { KUBECTL_REMOTE_COMMAND_WEBSOCKETS: "true", KUBECTL_PORT_FORWARD_WEBSOCKETS: "true" } },
  { name: "SPDY", env: { KUBECTL_REMOTE_COMMAND_WEBSOCKETS: "false", KUBECTL_PORT_FORWARD_WEBSOCKETS: "false" } },
] as const;

export type Transport = (typeof transports)[number];
