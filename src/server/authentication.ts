import type { IncomingMessage } from "node:http";
import type { PeerCertificates } from "./peer-certificates.ts";
import type { User } from "../api/access.ts";
import type { Authenticator } from "./ports.ts";

export interface AuthenticationDeps {
  readonly anonymous: boolean;
  readonly certificates: PeerCertificates;
  readonly authenticator?: Authenticator;
}

const anonymousUser: User = { name: "system:anonymous", groups: ["system:unauthenticated"] };
const authenticatedGroup = "system:authenticated";

/** Authenticates a request: by client certificate, then by bearer token (in the header, or in a WebSocket subprotocol). A request is
 *  anonymous only if anonymous access is enabled and it carries no failed credential. @returns undefined if the response is a 401.
 *  @throws the errors of the token's authenticator.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/#kubelet-authentication */
export async function authenticate(
  deps: AuthenticationDeps,
  request: IncomingMessage,
  signal: AbortSignal,
): Promise<User | undefined> {
  const peer = deps.certificates.identify(request.socket);
  if (peer.kind === "known") return authenticated(peer.user);
  const tokens = deps.authenticator ? tokensOf(request) : [];
  for (const token of tokens) {
    const user = await deps.authenticator?.byToken(token, request.socket.remoteAddress ?? "", signal);
    if (user) return authenticated(user);
  }
  if (peer.kind === "refused" || tokens.length > 0) return undefined;
  return deps.anonymous ? anonymousUser : undefined;
}

function authenticated(user: User): User {
  if (user.groups.includes(authenticatedGroup) || user.name === anonymousUser.name) return user;
  return { ...user, groups: [...user.groups, authenticatedGroup] };
}

function tokensOf(request: IncomingMessage): readonly string[] {
  const header = /^\s*bearer ([^ ]+)/i.exec(request.headers.authorization ?? "");
  return [header?.[1], protocolToken(request)].filter((token): token is string => token !== undefined && token !== "");
}

const prefix = "base64url.bearer.authorization.k8s.io.";

/** The bearer token that a WebSocket client sends as a subprotocol, as browsers must; undefined if there is none. A token is valid only
 *  together with another subprotocol, which the server can then select.
 *  @see https://kubernetes.io/docs/reference/using-api/health-checks/ (kubernetes/kubernetes#47740) */
function protocolToken(request: IncomingMessage): string | undefined {
  if (request.headers.upgrade?.toLowerCase() !== "websocket") return undefined;
  const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").flatMap((name) => name.trim() || []);
  const tokens = offered.filter((name) => name.startsWith(prefix));
  const [token] = tokens;
  if (token === undefined || tokens.length > 1 || offered.length === 1) return undefined;
  return Buffer.from(token.slice(prefix.length), "base64url").toString("utf8");
}
