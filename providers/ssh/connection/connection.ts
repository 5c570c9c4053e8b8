import { Socket, connect } from "node:net";
import type { Duplex } from "node:stream";
import ssh2, { type Client, type ClientChannel, type ConnectConfig } from "ssh2";
import type { Clock } from "../../../src/lib/clock.ts";
import { messageOf } from "../../../src/lib/errors.ts";
import { recycleWrittenBuffers } from "../../../src/lib/recycle-buffer.ts";
import { joinHostPort } from "../../../src/lib/http-get.ts";
import { errnoOf } from "../../local/errors.ts";
import type { SshConfig } from "../config.ts";
import type { SshEndpoint } from "../endpoint.ts";
import type { SshProxy } from "../proxy.ts";
import type { ReverseTunnel } from "../reverse/tunnel.ts";
import type { SshCredentials } from "./credentials.ts";
import { targetAlgorithms } from "./algorithms.ts";
import type { ChannelTransport } from "./channel-stream.ts";
import { type HostKeyCheck, hostKeyCheck } from "./host-key.ts";
import { type InboundWindows, enforceWindows } from "./inbound-windows.ts";
import { type LimitErrorFactory, isLimitError, limitErrorOf } from "./limit-exceeded.ts";
import { LinkError, type LinkReason } from "./link-state.ts";
import { createLoss } from "./loss.ts";
import { limitMessages } from "./message-limits.ts";
import { networkHint } from "./network-hint.ts";
import { createOutbound } from "./outbound.ts";
import { readLogin } from "./login.ts";
import { awaitOrDestroy } from "./await-or-destroy.ts";
import { offerHostCertificates, useCertificate } from "./ssh2-certificates.ts";
import { recycleReadBuffers } from "./recycle-reads.ts";
import { clipText, peerOf } from "./ssh2-peer.ts";
import { coalesceWrites } from "./coalesce-writes.ts";
import { dialByProxy } from "./through-proxy.ts";

/** One SSH connection to the target. Its signal aborts with a LinkError. */
export interface Connection extends ChannelTransport {
  readonly client: Client;
  /** The process on the target that serves this connection, as `HostConnections` names it; undefined until it is known. */
  server?: string;
  /** Session channels that are open or being opened, counted by the link. */
  sessions: number;
  /** Sessions held by users of the kubelet API. */
  userSessions: number;
  /** The target's known limit of sessions per connection. */
  sessionLimit: number;
  /** Number of channels that are open, or closed but not yet read to the end. */
  channels(): number;
  close(): void;
}

/** Assumed limit of sessions per connection, below OpenSSH's default of ten (MaxSessions). */
const defaultSessionLimit = 8;
/** Keepalive settings: a dead peer is detected within keepaliveIntervalMs × (keepaliveCount + 1) = 10.5 s of its last answer. */
const keepaliveIntervalMs = 3500;
const keepaliveCount = 2;
const readyTimeoutMs = 15_000;

type ConnectionClock = Pick<Clock, "within" | "now" | "after" | "monotonic">;

export interface ConnectDeps {
  readonly clock: ConnectionClock;
  /** The reverse tunnel, if the first machine connects to graftlet. */
  readonly reverse?: Pick<ReverseTunnel, "open" | "reportHostKey">;
}

/** Connects and logs in, through the jump hosts of proxyJump. @throws LinkError with the reason and a sentence that names the
 *  remedy. */
export async function openConnection(
  config: SshConfig,
  { clock, reverse }: ConnectDeps,
  signal: AbortSignal,
): Promise<Connection> {
  const hops: Hop[] = [];
  const closeHops = () => {
    for (const { connection } of hops.toReversed()) connection.close();
  };
  const transportTo = (door: SshEndpoint) => () => {
    const deadline = clock.within(readyTimeoutMs, signal);
    const from = hops.at(-1);
    if (from) return forwardFrom(from, door, deadline);
    return reverse ? reverse.open(deadline) : connectTo(door, config.proxy, deadline);
  };
  const logInTo = (door: SshEndpoint, entry: LoginContext) =>
    reverse && hops.length === 0 ? logInReverse(reverse, door, entry) : logIn(door, transportTo(door), entry);
  try {
    for (const sshd of config.proxyJump) hops.push({ sshd, connection: await logInTo(sshd, { clock, signal }) });
    const connection = await logInTo(config, { clock, signal, hops });
    if (connection.lost.aborted) closeHops();
    connection.lost.addEventListener("abort", closeHops, { once: true });
    return connection;
  } catch (error) {
    closeHops();
    throw error;
  }
}

/** A jump host, and the connection to it. */
interface Hop {
  readonly sshd: SshEndpoint;
  readonly connection: Connection;
}

/** Opens the transport to an sshd from this machine, through the proxy if there is one. */
async function connectTo({ host, port }: SshEndpoint, proxy: SshProxy | undefined, soon: AbortSignal): Promise<Duplex> {
  return proxy ? dialByProxy(proxy, { host, port }, soon) : connect({ host, port });
}

/** Opens the transport to an sshd through the previous jump host. @throws LinkError when the jump host cannot reach it. */
async function forwardFrom(from: Hop, { host, port }: SshEndpoint, deadline: AbortSignal): Promise<Duplex> {
  const { client } = from.connection;
  const channel = fromCallback((done) => client.forwardOut("127.0.0.1", 0, host, port, done));
  try {
    return await awaitOrDestroy(channel, deadline);
  } catch (error) {
    const [there, hop] = [`${host}:${port}`, endpointName(from.sshd)];
    const why = `${there} cannot be reached from ${hop} (${clipText(messageOf(error))}): check host and port, and that the sshd of ${hop} allows forwarding (AllowTcpForwarding, PermitOpen).`;
    throw new LinkError("LinkDown", "unavailable", why, { cause: error });
  }
}

interface LoginContext {
  readonly clock: ConnectionClock;
  readonly signal: AbortSignal;
  /** Jump hosts: the loss of any of them is the loss of this connection. */
  readonly hops?: readonly Hop[];
}

/** Logs in to an sshd. @param open opens the transport. */
async function logIn(
  sshd: SshEndpoint,
  open: () => Promise<Duplex>,
  { clock, signal, hops = [] }: LoginContext,
): Promise<Connection> {
  const check = await hostKeyCheck(sshd.trust, sshd, clock.now);
  const { credentials, certificate } = await readLogin(sshd.login, clock.now());
  const client = new ssh2.Client();
  const refused: { by?: LinkError } = {};
  const socket = coalesceWrites(recycleWrittenBuffers(await open()));
  // The client handles errors; once it has ended, this listener does.
  socket.on("error", () => undefined);
  let windows: InboundWindows | undefined;
  const connecting = () => {
    if (check.certificateAlgorithms.length > 0) offerHostCertificates(client, check.certificateAlgorithms);
    if (certificate) useCertificate(client, certificate);
    const [peer, exceeded] = [peerOf(client), limitErrorOf(endpointName(sshd))];
    limitMessages(peer, clock, exceeded);
    windows = enforceWindows(peer, exceeded);
  };
  const attempt = { sshd, socket, refused, connecting, signal };
  await connectClient(client, connectConfig(sshd, credentials, { check, refused }), attempt);
  client.setNoDelay(true);
  // Each socket that graftlet listens on at the target adds a listener.
  client.setMaxListeners(0);
  const outbound = createOutbound(peerOf(client), (listener) => client.on("handshake", listener));
  const { lost, reportLoss, onLost } = createLoss((error) =>
    error instanceof LinkError ? error : lostError(sshd, error),
  );
  client.on("error", (error) => {
    reportLoss(error);
    if (isLimitError(error)) socket.destroy();
  });
  client.once("close", () => reportLoss());
  for (const { connection: hop } of hops)
    hop.lost.addEventListener("abort", () => reportLoss(hop.lost.reason), { once: true });
  await check.saveFirstKey();
  return {
    client,
    lost,
    onLost,
    whenWritable: outbound.whenWritable,
    channels: () => windows?.channels() ?? 0,
    sessions: 0,
    userSessions: 0,
    sessionLimit: defaultSessionLimit,
    close() {
      reportLoss(new Error("closed by graftlet"));
      client.end();
      // A dead peer would never close its side of the connection.
      if (socket instanceof Socket) socket.destroySoon();
      else socket.end();
    },
  };
}

/** Logs in to a machine over a reverse tunnel. If one of its connections leads to a wrong host key, the others are tried. */
async function logInReverse(
  reverse: Pick<ReverseTunnel, "open" | "reportHostKey">,
  sshd: SshEndpoint,
  entry: LoginContext,
): Promise<Connection> {
  for (;;) {
    let opened: Duplex | undefined;
    const open = async () => (opened = await reverse.open(entry.clock.within(readyTimeoutMs, entry.signal)));
    try {
      const connection = await logIn(sshd, open, entry);
      if (opened) reverse.reportHostKey(opened, true);
      return connection;
    } catch (error) {
      const isWrongHostKey = error instanceof LinkError && wrongHostKeyReasons.includes(error.reason);
      if (!isWrongHostKey || !opened || !reverse.reportHostKey(opened, false)) throw error;
    }
  }
}

const wrongHostKeyReasons: readonly LinkReason[] = ["HostKeyMismatch", "HostKeyUnknown"];

interface CheckedHost {
  readonly check: HostKeyCheck;
  readonly refused: { by?: LinkError };
}

type Settings = Omit<ConnectConfig, "sock">;

function connectConfig({ user }: SshEndpoint, credentials: SshCredentials, { check, refused }: CheckedHost): Settings {
  return {
    username: user,
    ...credentials,
    algorithms: {
      ...targetAlgorithms,
      serverHostKey: [...check.algorithms] as NonNullable<ConnectConfig["algorithms"]>["serverHostKey"] & {},
    },
    hostVerifier: (key: Buffer) => {
      const refusal = check.refusal(key);
      if (refusal) refused.by = refusal;
      return refusal === undefined;
    },
    keepaliveInterval: keepaliveIntervalMs,
    keepaliveCountMax: keepaliveCount,
    readyTimeout: readyTimeoutMs,
  };
}

interface Attempt {
  readonly sshd: SshEndpoint;
  readonly socket: Duplex;
  readonly refused: { readonly by?: LinkError };
  /** Configures the client once it has begun to connect. */
  connecting(): void;
  readonly signal: AbortSignal;
}

function connectClient(
  client: Client,
  settings: Settings,
  { sshd, socket, refused, connecting, signal }: Attempt,
): Promise<void> {
  const handshake = watchHandshake(client, socket, limitErrorOf(endpointName(sshd)));
  recycleReadBuffers(client, socket);
  return new Promise((resolve, reject) => {
    const finish = (settle: () => void) => {
      signal.removeEventListener("abort", onAbort);
      settle();
    };
    const fail = (error: unknown) =>
      finish(() => {
        client.destroy();
        socket.destroy();
        reject(refused.by ?? (error instanceof LinkError ? error : connectError(sshd, error)));
      });
    // ssh2 reports an early end of the socket as an error without the peer's message.
    const end = (error?: unknown) =>
      fail(handshake.turnedAway() && !isLimitError(error) ? rejectedError(sshd, handshake.banner(), error) : error);
    const onAbort = () => fail(new Error("closed by graftlet"));
    // The listener stays: later errors belong to a connection that is no longer in use.
    client.on("error", end);
    client.once("close", () => end(new Error("the target closed the connection before the login was complete")));
    client.once("ready", () => finish(resolve));
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      client.connect({ ...settings, sock: socket });
      connecting();
    } catch (error) {
      fail(error);
    }
  });
}

const maxBannerLength = 200;
/** Limit of the peer's output until the first key exchange is done: a banner and one key exchange. */
const maxHandshakeBytes = 256 * 1024;

/** Records the start of the peer's output until the first key exchange is done, and limits that output. */
function watchHandshake(
  client: Client,
  socket: Duplex,
  exceeded: LimitErrorFactory,
): { turnedAway(): boolean; banner(): string } {
  let bytes = 0;
  const heard = { connected: !(socket instanceof Socket && socket.connecting), agreed: false, ended: false, text: "" };
  socket.once("connect", () => (heard.connected = true));
  for (const event of ["error", "end", "close"]) socket.once(event, () => (heard.ended = true));
  const listen = (chunk: Buffer) => {
    bytes += chunk.length;
    if (heard.text.length < maxBannerLength)
      heard.text = (heard.text + chunk.toString("latin1", 0, maxBannerLength)).slice(0, maxBannerLength);
    if (bytes > maxHandshakeBytes)
      client.emit("error", exceeded(`sent more than ${maxHandshakeBytes} bytes before the first key exchange`));
  };
  // The stream starts to flow once ssh2 listens for data, too.
  socket.setMaxListeners(0).pause().on("data", listen);
  client.once("handshake", () => {
    heard.agreed = true;
    socket.off("data", listen);
  });
  return { turnedAway: () => heard.connected && heard.ended && !heard.agreed, banner: () => heard.text };
}

/** Error for a connection that was closed before the login. sshd, or another service on that port, may send its reason as a line
 *  of plain text. */
function rejectedError(sshd: SshEndpoint, text: string, cause: unknown): LinkError {
  const line = /^(?!SSH-)[ -~]+/.exec(text)?.[0].trim();
  const quoted = line ? `, saying ${JSON.stringify(line)}` : "";
  return new LinkError(
    "ConnectionRejected",
    "unavailable",
    `${endpointName(sshd)} closed the connection before the login${quoted}: sshd does so for too many concurrent logins (MaxStartups) or repeated failures (PerSourcePenalties); otherwise check that an sshd listens on that port.`,
    { cause },
  );
}

/** Returns ssh2's `level` of an error: the part of ssh2 that it comes from; undefined for other errors. */
function levelOf(error: unknown): string | undefined {
  return error instanceof Error && "level" in error ? String(error.level) : undefined;
}

function connectError(sshd: SshEndpoint, error: unknown): LinkError {
  const target = endpointName(sshd);
  const level = levelOf(error);
  const cause = { cause: error };
  if (level === "client-authentication" || level === "agent")
    return new LinkError(
      "LoginRefused",
      "permission_denied",
      `${target} refused the login: ${loginRemedy(sshd)}`,
      cause,
    );
  const errno = level === "client-timeout" ? "ETIMEDOUT" : (errnoOf(error) ?? "");
  const hint = networkHint(errno, process.env);
  return new LinkError(
    "LinkDown",
    "unavailable",
    `${target} cannot be reached (${clipText(messageOf(error))}): ${hint}.`,
    cause,
  );
}

function loginRemedy({ user, login }: SshEndpoint): string {
  switch (login.kind) {
    case "key":
      if (login.certificateFile !== undefined)
        return `check that sshd there trusts the authority of ${login.certificateFile} (TrustedUserCAKeys) and that the certificate is issued for ${user}, or correct user.`;
      return `add the public key of ${login.privateKeyFile} to ~${user}/.ssh/authorized_keys there, or correct user.`;
    case "agent":
      return `add a key of the agent at ${login.agentSocket} to ~${user}/.ssh/authorized_keys there, or correct user.`;
    case "password":
      return `correct user or the password in ${login.passwordFile}, and check that sshd accepts passwords (PasswordAuthentication).`;
  }
}

/** ssh2's error level for a keepalive timeout. */
const keepaliveTimeoutLevel = "client-timeout";

function lostError(sshd: SshEndpoint, error: unknown): LinkError {
  const why =
    levelOf(error) === keepaliveTimeoutLevel
      ? "it no longer answers"
      : error === undefined
        ? "it closed the connection"
        : clipText(messageOf(error));
  return new LinkError("LinkDown", "unavailable", `the connection to ${endpointName(sshd)} is lost: ${why}.`, {
    cause: error,
  });
}

/** True when a connection was lost because its peer stopped answering. */
export function stoppedAnswering(why: LinkError): boolean {
  return levelOf(why.cause) === keepaliveTimeoutLevel;
}

/** Formats an endpoint for messages, as USER@HOST:PORT. */
export function endpointName({ user, host, port }: Pick<SshEndpoint, "user" | "host" | "port">): string {
  return `${user}@${joinHostPort(host, port)}`;
}

/** Returns the target's reason code for refusing a channel (RFC 4254 §5.1); undefined for other errors. */
export function channelRefusal(error: unknown): number | undefined {
  if (!(error instanceof Error) || !("reason" in error)) return undefined;
  return typeof error.reason === "number" ? error.reason : 0;
}

/** Returns a promise for an ssh2 call that takes a callback. @throws the call's errors. */
export function fromCallback<Channel = ClientChannel>(
  call: (done: (error: Error | undefined, channel: Channel) => void) => void,
): Promise<Channel> {
  return new Promise((resolve, reject) => {
    call((error, channel) => (error ? reject(error) : resolve(channel)));
  });
}
