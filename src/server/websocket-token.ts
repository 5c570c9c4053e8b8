import type { IncomingMessage } from "node:http";

const prefix = "base64url.bearer.authorization.k8s.io.";

/** The bearer token that a WebSocket client sends as a subprotocol, as browsers must; undefined if there is none. A token is valid only
 *  together with another subprotocol, which the server can then select.
 *  @see https://kubernetes.io/docs/reference/using-api/health-checks/ (kubernetes/kubernetes#47740) */
export function protocolToken(request: IncomingMessage): string | undefined {
  if (request.headers.upgrade?.toLowerCase() !== "websocket") return undefined;
  const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").flatMap((name) => name.trim() || []);
  const tokens = offered.filter((name) => name.startsWith(prefix));
  const [token] = tokens;
  if (token === undefined || tokens.length > 1 || offered.length === 1) return undefined;
  return Buffer.from(token.slice(prefix.length), "base64url").toString("utf8");
}
