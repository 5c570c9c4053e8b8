import { type IncomingMessage, request as plainRequest } from "node:http";
import { request as secureRequest } from "node:https";
import type { Socket } from "node:net";
import { SocksClient } from "socks";
import { messageOf } from "../../../src/lib/errors.ts";
import { joinHostPort } from "../../../src/lib/http-get.ts";
import type { SshProxy } from "../proxy.ts";
import { readSecretLine } from "./credentials.ts";
import { LinkError } from "./link-state.ts";
import { awaitOrDestroy } from "./await-or-destroy.ts";

interface ProxyDestination {
  readonly host: string;
  readonly port: number;
}

/** Timeout of the SOCKS library, milliseconds: longer than that of the whole login, which applies instead. */
const socksTimeoutMs = 20_000;

/** Connects to a machine through a proxy, which resolves its name. @throws LinkError, a sentence that names the proxy and the
 *  reason. */
export async function dialByProxy(proxy: SshProxy, to: ProxyDestination, deadline: AbortSignal): Promise<Socket> {
  try {
    return await awaitOrDestroy(openThroughProxy(proxy, to, deadline), deadline);
  } catch (cause) {
    const [there, by] = [`${to.host}:${to.port}`, `${proxy.scheme}://${proxy.host}:${proxy.port}`];
    const why = `${there} cannot be reached through the proxy ${by} (${messageOf(cause)}): check proxy, host and port, and that the proxy allows connections to that port.`;
    throw new LinkError("LinkDown", "unavailable", why, { cause });
  }
}

async function openThroughProxy(proxy: SshProxy, to: ProxyDestination, deadline: AbortSignal): Promise<Socket> {
  const { passwordFile } = proxy;
  const password = passwordFile === undefined ? undefined : await readSecretLine("proxyPasswordFile", passwordFile);
  return proxy.scheme === "socks5" ? connectSocks5(proxy, password, to) : connectHttp(proxy, password, to, deadline);
}

/** @see RFC 1928, RFC 1929 */
async function connectSocks5(
  { host, port, user }: SshProxy,
  password: string | undefined,
  to: ProxyDestination,
): Promise<Socket> {
  const login = user !== undefined && { userId: user, password: password ?? "" };
  const { socket } = await SocksClient.createConnection({
    command: "connect",
    destination: to,
    proxy: { host, port, type: 5, ...login },
    timeout: socksTimeoutMs,
    set_tcp_nodelay: true,
  });
  return socket;
}

/** @see RFC 9110, section 9.3.6 */
function connectHttp(
  { scheme, host, port, user }: SshProxy,
  password: string | undefined,
  to: ProxyDestination,
  signal: AbortSignal,
): Promise<Socket> {
  const place = joinHostPort(to.host, to.port);
  const login = user !== undefined && {
    "Proxy-Authorization": `Basic ${Buffer.from(`${user}:${password ?? ""}`).toString("base64")}`,
  };
  const ask = scheme === "https" ? secureRequest : plainRequest;
  return new Promise((resolve, reject) => {
    const headers = { Host: place, ...login };
    const request = ask({ host, port, method: "CONNECT", path: place, headers, agent: false });
    const late = () => request.destroy();
    signal.addEventListener("abort", late, { once: true });
    request.once("connect", (answer: IncomingMessage, socket: Socket, head: Buffer) => {
      signal.removeEventListener("abort", late);
      if (answer.statusCode !== 200) {
        socket.destroy();
        return reject(refusal(answer));
      }
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    // Some proxies refuse with an ordinary response.
    request.once("response", (answer) => {
      answer.resume();
      reject(refusal(answer));
    });
    request.once("error", reject);
    request.end();
  });
}

function refusal({ statusCode, statusMessage = "" }: IncomingMessage): Error {
  return new Error(`it answered ${statusCode} ${statusMessage}`.trimEnd());
}
