import { Socket, connect } from "node:net";
import type { Duplex } from "node:stream";
import ssh2, { type Client, type ClientChannel, type ConnectConfig } from "ssh2";
import type { Clock } from "../../../src/lib/clock.ts";
import { messageOf } from "../../../src/lib/errors.ts";
import { recycleWrittenBuffers } from "../../../src/lib/recycle-buffer.ts";
import { joinHostPort } from "../../../src/lib/http-get.ts";
import { errnoOf } from "../../local/errors.ts";
import type { SshConfig } from "../config.ts";
import type { Door } from "../door.ts";
import type { Proxy } from "../proxy.ts";
import type { ReverseWay } from "../reverse/way.ts";
import type { Credentials } from "./credentials.ts";
import { targetAlgorithms } from "./algorithms.ts";
import type { Carrier } from "./channel-stream.ts";
import { type HostKeyCheck, hostKeyCheck } from "./host-key.ts";
import { type InboundWindows, enforceWindows } from "./inbound-windows.ts";
import { type LimitExceeded, exceedsLimit, limitExceeded } from "./limit-exceeded.ts";
import { LinkError, type LinkReason } from "./link-state.ts";
import { lossOf } from "./loss.ts";
import { limitMessages } from "./message-limits.ts";
import { createOutbound } from "./outbound.ts";
import { readLogin } from "./login.ts";
import { orDropped } from "./or-dropped.ts";
import { offerHostCertificates, showCertificate } from "./ssh2-certificates.ts";
import { giveBackRead } from "./read-blocks.ts";
import { clipped, peerOf } from "./ssh2-peer.ts";
import { sendTogether } from "./send-together.ts";
import { throughProxy } from "./through-proxy.ts";

/** One SSH connection to the target. Its signal aborts with a LinkError. */
export interface Connection extends Carrier {
  readonly client: Client;
  /** Session channels that are open or being opened, counted by the link. */
  sessions: number;
  /** Sessions held by users of the kubelet API. */
  forUsers: number;
  /** The target's known limit of sessions per connection. */
  limit: number;
  /** Number of channels that are open, or closed but not yet read to the end. */
  channels(): number;
  close(): void;
}

/** Below OpenSSH's default of ten sessions per connection (MaxSessions). */
const defaultSessionLimit = 8;
/** A dead peer is detected within keepaliveMs × (keepaliveCount + 1) = 10.5 s of its last answer. */
const keepaliveMs = 3500;
const keepaliveCount = 2;
const readyTimeoutMs = 15_000;

type ConnectionClock = Pick<Clock, "within" | "now" | "after" | "monotonic">;

export interface OpenDeps {
  readonly clock: ConnectionClock;
  /** The reverse tunnel, if the first machine connects to graftlet. */
  readonly reverse?: Pick<ReverseWay, "open" | "judge">;
}

/** Connects and logs in, through the jump hosts of proxyJump. @throws LinkError with the reason and a sentence. */
export async function openConnection(
  config: SshConfig,
  { clock, reverse }: OpenDeps,
  signal: AbortSignal,
): Promise<Connection> {
  const hops: Hop[] = [];
  const closeHops = () => {
    for (const { connection } of hops.toReversed()) connection.close();
  };
  const wayOn = (door: Door) => () => {
    const soon = clock.within(readyTimeoutMs, signal);
    const from = hops.at(-1);
    if (from) return wayFrom(from, door, soon);
    return reverse ? reverse.open(soon) : wayTo(door, config.proxy, soon);
  };
  const enterFrom = (door: Door, entry: Entry) =>
    reverse && hops.length === 0 ? enterByOneOf(reverse, door, entry) : enter(door, wayOn(door), entry);
  try {
    for (const door of config.proxyJump) hops.push({ door, connection: await enterFrom(door, { clock, signal }) });
    const connection = await enterFrom(config, { clock, signal, hops });
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
  readonly door: Door;
  readonly connection: Connection;
}

/** Opens the transport to an sshd from this machine. */
async function wayTo({ host, port }: Door, proxy: Proxy | undefined, soon: AbortSignal): Promise<Duplex> {
  return proxy ? throughProxy(proxy, { host, port }, soon) : connect({ host, port });
}

/** Opens the transport to an sshd through the previous jump host. @throws LinkError when the jump host cannot reach it. */
async function wayFrom(from: Hop, { host, port }: Door, soon: AbortSignal): Promise<Duplex> {
  const { client } = from.connection;
  const channel = opened((done) => client.forwardOut("127.0.0.1", 0, host, port, done));
  try {
    return await orDropped(channel, soon);
  } catch (error) {
    const [there, hop] = [`${host}:${port}`, nameOf(from.door)];
    const why = `${there} cannot be reached from ${hop} (${clipped(messageOf(error))}): check host and port, and that sshd of ${hop} forwards (AllowTcpForwarding, PermitOpen).`;
    throw new LinkError("LinkDown", "unavailable", why, { cause: error });
  }
}

interface Entry {
  readonly clock: ConnectionClock;
  readonly signal: AbortSignal;
  /** Jump hosts: the loss of any of them is the loss of this connection. */
  readonly hops?: readonly Hop[];
}

/** Logs in to an sshd. @param way opens the transport. */
async function enter(door: Door, way: () => Promise<Duplex>, { clock, signal, hops = [] }: Entry): Promise<Connection> {
  const check = await hostKeyCheck(door.trust, door, clock.now);
  const { credentials, certificate } = await readLogin(door.login, clock.now());
  const client = new ssh2.Client();
  const refused: { by?: LinkError } = {};
  const socket = sendTogether(recycleWrittenBuffers(await way()));
  // The client handles errors first; after it has ended nothing else would.
  socket.on("error", () => undefined);
  let windows: InboundWindows | undefined;
  const connecting = () => {
    if (check.certificateAlgorithms.length > 0) offerHostCertificates(client, check.certificateAlgorithms);
    if (certificate) showCertificate(client, certificate);
    const [peer, exceeded] = [peerOf(client), limitExceeded(nameOf(door))];
    limitMessages(peer, clock, exceeded);
    windows = enforceWindows(peer, exceeded);
  };
  const attempt = { door, socket, refused, connecting, signal };
  await ready(client, connectConfig(door, credentials, { check, refused }), attempt);
  client.setNoDelay(true);
  // Each socket that graftlet listens on at the target adds a listener.
  client.setMaxListeners(0);
  const outbound = createOutbound(peerOf(client), (listener) => client.on("handshake", listener));
  const { lost, lose, onLost } = lossOf((error) => (error instanceof LinkError ? error : lostError(door, error)));
  client.on("error", (error) => {
    lose(error);
    if (exceedsLimit(error)) socket.destroy();
  });
  client.once("close", () => lose());
  for (const { connection: hop } of hops)
    hop.lost.addEventListener("abort", () => lose(hop.lost.reason), { once: true });
  await check.remember();
  return {
    client,
    lost,
    onLost,
    whenWritable: outbound.whenWritable,
    channels: () => windows?.channels() ?? 0,
    sessions: 0,
    forUsers: 0,
    limit: defaultSessionLimit,
    close() {
      lose(new Error("closed by graftlet"));
      client.end();
      // A dead peer would never close its half.
      if (socket instanceof Socket) socket.destroySoon();
      else socket.end();
    },
  };
}

/** Logs in to a machine over a reverse tunnel. If one of its connections leads to a wrong host key, the others are tried. */
async function enterByOneOf(
  reverse: Pick<ReverseWay, "open" | "judge">,
  door: Door,
  entry: Entry,
): Promise<Connection> {
  for (;;) {
    let opened: Duplex | undefined;
    const way = async () => (opened = await reverse.open(entry.clock.within(readyTimeoutMs, entry.signal)));
    try {
      const connection = await enter(door, way, entry);
      if (opened) reverse.judge(opened, true);
      return connection;
    } catch (error) {
      const isFalse = error instanceof LinkError && falseHostKey.includes(error.reason);
      if (!isFalse || !opened || !reverse.judge(opened, false)) throw error;
    }
  }
}

const falseHostKey: readonly LinkReason[] = ["HostKeyMismatch", "HostKeyUnknown"];

interface HostKeyVerdict {
  readonly check: HostKeyCheck;
  readonly refused: { by?: LinkError };
}

type Settings = Omit<ConnectConfig, "sock">;

function connectConfig({ user }: Door, credentials: Credentials, { check, refused }: HostKeyVerdict): Settings {
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
    keepaliveInterval: keepaliveMs,
    keepaliveCountMax: keepaliveCount,
    readyTimeout: readyTimeoutMs,
  };
}

interface Attempt {
  readonly door: Door;
  readonly socket: Duplex;
  readonly refused: { readonly by?: LinkError };
  /** Configures the client once it has begun to connect. */
  connecting(): void;
  readonly signal: AbortSignal;
}

function ready(
  client: Client,
  settings: Settings,
  { door, socket, refused, connecting, signal }: Attempt,
): Promise<void> {
  const greeted = listenIn(client, socket, limitExceeded(nameOf(door)));
  giveBackRead(client, socket);
  return new Promise((resolve, reject) => {
    const finish = (settle: () => void) => {
      signal.removeEventListener("abort", onAbort);
      settle();
    };
    const fail = (error: unknown) =>
      finish(() => {
        client.destroy();
        socket.destroy();
        reject(refused.by ?? (error instanceof LinkError ? error : connectError(door, error)));
      });
    // An early end of the socket is reported as an error without the peer's message.
    const end = (error?: unknown) =>
      fail(greeted.turnedAway() && !exceedsLimit(error) ? turnedAway(door, greeted.said(), error) : error);
    const onAbort = () => fail(new Error("closed by graftlet"));
    // Later errors belong to a connection that is no longer in use.
    client.on("error", end);
    client.once("close", () => end(new Error("the target closed the connection before the login was done")));
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

const keptOfGreeting = 200;
/** Limit of the peer's output until the first key exchange is done: a banner and one key exchange. */
const bytesOfHandshake = 256 * 1024;

/** Records the start of the peer's output until the first key exchange is done, and limits that output. */
function listenIn(client: Client, socket: Duplex, exceeded: LimitExceeded): { turnedAway(): boolean; said(): string } {
  let bytes = 0;
  const heard = { connected: !(socket instanceof Socket && socket.connecting), agreed: false, ended: false, text: "" };
  socket.once("connect", () => (heard.connected = true));
  for (const event of ["error", "end", "close"]) socket.once(event, () => (heard.ended = true));
  const listen = (chunk: Buffer) => {
    bytes += chunk.length;
    if (heard.text.length < keptOfGreeting)
      heard.text = (heard.text + chunk.toString("latin1", 0, keptOfGreeting)).slice(0, keptOfGreeting);
    if (bytes > bytesOfHandshake)
      client.emit("error", exceeded(`sent more than ${bytesOfHandshake} bytes before the first key exchange`));
  };
  // The stream starts to flow once ssh2 listens for data, too.
  socket.setMaxListeners(0).pause().on("data", listen);
  client.once("handshake", () => {
    heard.agreed = true;
    socket.off("data", listen);
  });
  return { turnedAway: () => heard.connected && heard.ended && !heard.agreed, said: () => heard.text };
}

/** Error for a connection that was closed before the login. sshd may give its reason in a plain-text line, as may any other service on that
 *  port, or give none at all. */
function turnedAway(door: Door, text: string, cause: unknown): LinkError {
  const line = /^(?!SSH-)[ -~]+/.exec(text)?.[0].trim();
  const said = line ? `, saying ${JSON.stringify(line)}` : "";
  return new LinkError(
    "TurnedAway",
    "unavailable",
    `${nameOf(door)} closed the connection before the login${said}: sshd does so for too many concurrent logins (MaxStartups) or repeated failures (PerSourcePenalties); otherwise check that port is that of an sshd.`,
    { cause },
  );
}

/** ssh2's origin of an error; its values serve for messages only, apart from the keepalive timeout. */
function levelOf(error: unknown): string | undefined {
  return error instanceof Error && "level" in error ? String(error.level) : undefined;
}

function connectError(door: Door, error: unknown): LinkError {
  const target = nameOf(door);
  const level = levelOf(error);
  const cause = { cause: error };
  if (level === "client-authentication" || level === "agent")
    return new LinkError(
      "LoginRefused",
      "permission_denied",
      `${target} refused the login: ${loginRemedy(door)}`,
      cause,
    );
  const errno = level === "client-timeout" ? "ETIMEDOUT" : (errnoOf(error) ?? "");
  const hint = networkHints[errno] ?? "check host and port, and that sshd runs there";
  return new LinkError(
    "LinkDown",
    "unavailable",
    `${target} cannot be reached (${clipped(messageOf(error))}): ${hint}.`,
    cause,
  );
}

const networkHints: Readonly<Record<string, string>> = {
  ENOTFOUND: "unknown host name: check host",
  EAI_AGAIN: "the host name cannot be resolved at the moment: check this machine's DNS",
  ECONNREFUSED: "connection refused: check port, and that sshd runs",
  EHOSTUNREACH: "no route to host: check host, and that the machine is up",
  ENETUNREACH: "network unreachable: check host, and this machine's routes",
  ETIMEDOUT: "no answer: check host, that the machine is up, and any firewalls in between",
};

function loginRemedy({ user, login }: Door): string {
  switch (login.by) {
    case "key":
      if (login.certificateFile !== undefined)
        return `check that sshd there trusts the authority of ${login.certificateFile} (TrustedUserCAKeys) and that it is issued for ${user}, or correct user.`;
      return `add the public key of ${login.privateKeyFile} to ~${user}/.ssh/authorized_keys there, or correct user.`;
    case "agent":
      return `add a key of the agent at ${login.agentSocket} to ~${user}/.ssh/authorized_keys there, or correct user.`;
    case "password":
      return `correct user or the password in ${login.passwordFile}, and check that sshd accepts passwords (PasswordAuthentication).`;
  }
}

/** ssh2's error level for a keepalive timeout. */
const silence = "client-timeout";

function lostError(door: Door, error: unknown): LinkError {
  const why =
    levelOf(error) === silence
      ? "it no longer answers"
      : error === undefined
        ? "it closed the connection"
        : clipped(messageOf(error));
  return new LinkError("LinkDown", "unavailable", `the connection to ${nameOf(door)} is lost: ${why}.`, {
    cause: error,
  });
}

/** True when a connection was lost because its peer stopped answering. */
export function wentSilent(why: LinkError): boolean {
  return levelOf(why.cause) === silence;
}

/** Formats an endpoint for messages, as USER@HOST:PORT. */
export function nameOf({ user, host, port }: Pick<Door, "user" | "host" | "port">): string {
  return `${user}@${joinHostPort(host, port)}`;
}

/** Returns the target's reason code for refusing a channel (RFC 4254 §5.1); undefined for other errors. */
export function channelRefusal(error: unknown): number | undefined {
  if (!(error instanceof Error) || !("reason" in error)) return undefined;
  return typeof error.reason === "number" ? error.reason : 0;
}

/** Turns an ssh2 call with a callback into a promise. @throws the call's errors. */
export function opened<Channel = ClientChannel>(
  call: (done: (error: Error | undefined, channel: Channel) => void) => void,
): Promise<Channel> {
  return new Promise((resolve, reject) => {
    call((error, channel) => (error ? reject(error) : resolve(channel)));
  });
}
