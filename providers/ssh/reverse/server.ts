import { type AddressInfo, type Server as NetServer, type Socket, createServer } from "node:net";
import ssh2, {
  type AuthContext,
  type Connection as ServerConnection,
  type ParsedKey,
  type PublicKeyAuthContext,
  type ServerChannel,
} from "ssh2";
import type { Clock } from "../../../src/lib/clock.ts";
import { messageOf } from "../../../src/lib/errors.ts";
import { recycleWrittenBuffers } from "../../../src/lib/recycle-buffer.ts";
import type { Logger, ClockAndLog } from "../../../src/lib/log.ts";
import { fromCallback } from "../connection/connection.ts";
import { listenerAlgorithms } from "../connection/algorithms.ts";
import { fingerprintOf } from "../connection/fingerprint.ts";
import { enforceWindows } from "../connection/inbound-windows.ts";
import { isLimitError, limitErrorOf } from "../connection/limit-exceeded.ts";
import { limitMessages } from "../connection/message-limits.ts";
import { awaitOrDestroy } from "../connection/await-or-destroy.ts";
import { type EnrolmentHandler, parseEnrolmentUser } from "../../../src/seams/enrolment.ts";
import { type EnrollingMachine, acceptEnrolment } from "./enrolment.ts";
import { peerOf } from "../connection/ssh2-peer.ts";
import { coalesceWrites } from "../connection/coalesce-writes.ts";
import type { ReverseConnection } from "./connections.ts";
import { type LoginLimiter, createLoginLimiter } from "./login-limiter.ts";
import { type PendingForward, type ForwardLimiter, createForwardLimiter } from "./forward-limiter.ts";

/** The machine that a key belongs to. */
export interface KeyOwner {
  readonly name: string;
  readonly key: ParsedKey;
  onConnected(connection: ReverseConnection): void;
  onDisconnected(connection: ReverseConnection): void;
}

export interface ReverseServerOptions extends ClockAndLog {
  readonly address: string;
  readonly port: number;
  readonly hostKey: Buffer;
  /** Looks up the machine of a public key. @param key in SSH's wire format. @returns undefined for an unknown key. */
  readonly findKeyOwner: (key: Buffer) => Promise<KeyOwner | undefined>;
  /** Returns the handler that decides which machines may enrol; undefined if none may. */
  readonly enrolment: () => EnrolmentHandler | undefined;
}

export type ReverseServer = Awaited<ReturnType<typeof startReverseServer>>;

/** Timeouts for the login, and then for requesting the forward, milliseconds. */
const [loginTimeoutMs, forwardTimeoutMs] = [10_000, 10_000];
/** Delay of the answer to a refused key, milliseconds. It is short, as ssh tries each key of its agent. */
const failureDelayMs = 300;
const maxKeysTried = 6;
/** Limit of authentication requests: two for each key (a query, then the signature), and one for the initial `none`. */
const maxAuthRequests = 2 * maxKeysTried + 1;
/** Limit of the data received before the login, bytes. It consists of identification, one key exchange, and keys. */
const maxBytesBeforeLogin = 64 * 1024;
/** Keepalive interval, milliseconds; a dead machine is detected after three intervals. */
const keepaliveIntervalMs = 5_000;
/** Interval of log lines about rejected connections, milliseconds. */
const logIntervalMs = 60_000;

/** Starts the SSH server for reverse tunnels. It accepts logins with known keys and one forward (`-R`) per connection, enrolments with a
 *  token, and nothing else: no other sessions or forwards, and no passwords.
 *  @throws Error when the host key is invalid, or the address cannot be listened on. */
export async function startReverseServer(options: ReverseServerOptions) {
  const { address, port, hostKey, clock, log } = options;
  const limiter = createLoginLimiter(clock);
  const forwardLimiter = createForwardLimiter(clock);
  const pendingLogins = new Map<string, PendingLogin>();
  const sockets = new Set<Socket>();
  const ssh = new ssh2.Server(
    {
      hostKeys: [hostKey],
      ident: "graftlet",
      keepaliveInterval: keepaliveIntervalMs,
      keepaliveCountMax: 2,
      algorithms: listenerAlgorithms,
    },
    (client, { ip, port: from }) => {
      const pending = pendingLogins.get(peerKeyOf(ip, from));
      if (pending) serve(client, pending, { ...options, forwardLimiter });
      else client.end();
    },
  );
  // This server does not listen itself: connections are passed to it.
  ssh.on("error", (err: Error) => log.warn({ err }, "SSH server for reverse tunnels failed"));
  const net = createServer((socket) => {
    const attempt = limiter.admit(socket.remoteAddress ?? "", () => socket.destroy());
    if (!attempt) return void socket.destroy();
    const peerKey = peerKeyOf(socket.remoteAddress, socket.remotePort);
    const loginTimer = clock.after(loginTimeoutMs, () => socket.destroy());
    sockets.add(coalesceWrites(recycleWrittenBuffers(socket.setNoDelay(true))));
    let bytes = 0;
    const count = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > maxBytesBeforeLogin) socket.destroy();
    };
    const loggedIn = () => {
      loginTimer.cancel();
      socket.off("data", count);
      attempt.loggedIn();
    };
    pendingLogins.set(peerKey, { loggedIn, socket });
    socket.on("error", () => undefined);
    socket.once("close", () => {
      loginTimer.cancel();
      attempt.failed();
      pendingLogins.delete(peerKey);
      sockets.delete(socket);
    });
    ssh.injectSocket(socket);
    // The socket stays paused until ssh2 listens, too.
    socket.on("data", count);
  });
  await listening(net, address, port);
  // The cause may be too many open files; pending connections are accepted later.
  net.on("error", (err) => log.warn({ err }, "cannot accept reverse connection"));
  const rejectionLog = logRejections(limiter, clock, log);
  return {
    port: (net.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      rejectionLog.stop();
      const closed = new Promise((resolve) => net.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

function peerKeyOf(address: string | undefined, port: number | undefined): string {
  return `${address} ${port}`;
}

function listening(net: NetServer, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    net.once("error", reject);
    net.listen({ host, port }, () => {
      net.off("error", reject);
      resolve();
    });
  });
}

/** Logs the number of rejected connections at intervals. */
function logRejections(limiter: LoginLimiter, clock: Clock, log: Logger): { stop(): void } {
  let logged = 0;
  const logNew = () => {
    const refused = limiter.rejections();
    if (refused > logged)
      log.warn(
        { refused: refused - logged },
        "connections to the reverse-tunnel listener were rejected, or closed before a login",
      );
    logged = refused;
    timer = clock.after(logIntervalMs, logNew);
  };
  let timer = clock.after(logIntervalMs, logNew);
  return { stop: () => timer.cancel() };
}

/** A connection that has not logged in yet. */
interface PendingLogin {
  readonly socket: Socket;
  loggedIn(): void;
}

interface ServeOptions extends ReverseServerOptions {
  readonly forwardLimiter: ForwardLimiter;
}

function serve(client: ServerConnection, pending: PendingLogin, options: ServeOptions): void {
  const { loggedIn, socket } = pending;
  const { clock, log } = options;
  const login = createAuthentication(client, pending, options);
  const peer = peerOf(client);
  const exceeded = limitErrorOf(`the machine at ${socket.remoteAddress}`);
  limitMessages(peer, clock, exceeded);
  enforceWindows(peer, exceeded);
  client.on("error", (error) => {
    log.debug({ err: error, from: socket.remoteAddress }, "connection to the reverse-tunnel listener failed");
    if (isLimitError(error)) socket.destroy();
  });
  client.on("authentication", (ctx) => {
    login.answer(ctx).catch((error: unknown) => {
      log.warn({ err: error }, "cannot look up the key of a reverse connection");
      client.end();
    });
  });
  client.once("ready", () => {
    const enrolling = login.enrolling();
    const handler = options.enrolment();
    if (enrolling && handler) {
      loggedIn();
      const from = socket.remoteAddress ?? "";
      return acceptEnrolment(client, { ...enrolling, from }, { handler, clock, log });
    }
    const owner = login.owner();
    const slot = owner && options.forwardLimiter.admit(owner.name, () => void socket.destroy());
    if (!owner || !slot) return void socket.destroy();
    loggedIn();
    acceptForward(client, { holder: owner, socket, place: slot }, options);
  });
}

/** Authenticates one connection. The initial `none`, by which a client asks for the supported methods, does not count as a failure. */
function createAuthentication(
  client: ServerConnection,
  { socket }: PendingLogin,
  { clock, findKeyOwner, enrolment }: ReverseServerOptions,
) {
  let owner: KeyOwner | undefined;
  let enrolling: Omit<EnrollingMachine, "from"> | undefined;
  let [requests, tried] = [0, 0];
  const reject = async (ctx: AuthContext): Promise<void> => {
    tried += 1;
    await clock.sleep(failureDelayMs);
    if (tried >= maxKeysTried) client.end();
    else ctx.reject(["publickey"]);
  };
  /** Identifies an enrolling machine by the user name, if its token is valid; any key is accepted. */
  const enrollingOf = (ctx: PublicKeyAuthContext): Omit<EnrollingMachine, "from"> | undefined => {
    const named = parseEnrolmentUser(ctx.username);
    if (!named || !enrolment()?.isValid(named.nodeName, named.token)) return undefined;
    const key = ssh2.utils.parseKey(`${ctx.key.algo} ${ctx.key.data.toString("base64")}`);
    return key instanceof Error ? undefined : { ...named, key };
  };
  return {
    /** Returns the machine that has logged in to enrol. */
    enrolling: () => enrolling,
    /** Returns the machine that has logged in. */
    owner: (): KeyOwner | undefined => owner,
    async answer(ctx: AuthContext): Promise<void> {
      requests += 1;
      if (requests > maxAuthRequests) return void socket.destroy();
      if (ctx.method === "none" && requests === 1) return ctx.reject(["publickey"]);
      if (ctx.method !== "publickey") return reject(ctx);
      const enrols = enrollingOf(ctx);
      const known = enrols ? undefined : await findKeyOwner(ctx.key.data);
      const key = enrols?.key ?? known?.key;
      if (!key || !isAuthorized(key, ctx)) return reject(ctx);
      if (ctx.signature) [owner, enrolling] = [known, enrols];
      else nameAlgorithm(ctx);
      ctx.accept();
    },
  };
}

/** Names the requested algorithm in the answer: ssh2 would name the key's type, which OpenSSH 10.6 and later does not accept for RSA. */
function nameAlgorithm({ key, hashAlgo }: PublicKeyAuthContext): void {
  if (key.algo === "ssh-rsa" && hashAlgo !== undefined) key.algo = `rsa-sha2-${hashAlgo === "sha256" ? "256" : "512"}`;
}

/** True for a query without a signature, and for a valid signature by the key. */
function isAuthorized(key: ParsedKey, { signature, blob, hashAlgo }: PublicKeyAuthContext): boolean {
  if (signature === undefined) return true;
  // Contrary to its types, ssh2 returns an Error for some malformed signatures.
  const verdict: unknown = blob !== undefined && key.verify(blob, signature, hashAlgo);
  return verdict === true;
}

/** Accepts the forward of a machine that has logged in. */
function acceptForward(
  client: ServerConnection,
  {
    holder: owner,
    socket,
    place: slot,
  }: { readonly holder: KeyOwner; readonly socket: Socket; readonly place: PendingForward },
  { clock, log }: ReverseServerOptions,
): void {
  const about = { machine: owner.name, from: socket.remoteAddress, key: fingerprintOf(owner.key.getPublicSSH()) };
  let connection: ReverseConnection | undefined;
  const forwardTimer = clock.after(forwardTimeoutMs, () => {
    log.warn(about, "closed a reverse connection without a forward: its ssh needs -R 22:127.0.0.1:22");
    client.end();
  });
  client.on("request", (accept, reject, name, info) => {
    if (name !== "tcpip-forward" || connection) return reject?.();
    forwardTimer.cancel();
    slot.release();
    // Channels have to repeat exactly the address and port that were confirmed.
    const port = info.bindPort || anyPort;
    accept?.(port);
    const forward = (signal: AbortSignal) =>
      awaitOrDestroy(
        fromCallback<ServerChannel>((done) => client.forwardOut(info.bindAddr, port, "127.0.0.1", 0, done)),
        signal,
      );
    connection = { forward, close: () => void socket.destroy() };
    log.info(about, "accepted reverse connection");
    owner.onConnected(connection);
  });
  socket.once("close", () => {
    forwardTimer.cancel();
    slot.release();
    if (!connection) return;
    log.info(about, "reverse connection closed");
    owner.onDisconnected(connection);
  });
}

/** Port that is confirmed if the machine lets the server choose one; graftlet does not listen there. */
const anyPort = 22;

/** Validates the private host key of the listener. @throws Error, a sentence, when the file has none. */
export function parseHostKey(file: string, data: Buffer): Buffer {
  const key = ssh2.utils.parseKey(data);
  if (key instanceof Error || !key.isPrivateKey())
    throw new Error(
      `${file} is not a usable private key (${key instanceof Error ? messageOf(key) : "it is a public key"}): create one with ssh-keygen -t ed25519 -N ''`,
    );
  return data;
}
