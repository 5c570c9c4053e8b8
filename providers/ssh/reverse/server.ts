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
import type { Logger } from "../../../src/lib/log.ts";
import { opened } from "../connection/connection.ts";
import { listenerAlgorithms } from "../connection/algorithms.ts";
import { fingerprintOf } from "../connection/fingerprint.ts";
import { enforceWindows } from "../connection/inbound-windows.ts";
import { exceedsLimit, limitExceeded } from "../connection/limit-exceeded.ts";
import { limitMessages } from "../connection/message-limits.ts";
import { orDropped } from "../connection/or-dropped.ts";
import { peerOf } from "../connection/ssh2-peer.ts";
import { sendTogether } from "../connection/send-together.ts";
import type { Dialled } from "./dialled.ts";
import { type Doorkeeper, createDoorkeeper } from "./doorkeeper.ts";
import { type Place, type Turnstiles, createTurnstiles } from "./turnstiles.ts";

/** The machine that a key belongs to. */
export interface KeyHolder {
  readonly name: string;
  readonly key: ParsedKey;
  arrived(connection: Dialled): void;
  gone(connection: Dialled): void;
}

export interface ReverseServerOptions {
  readonly address: string;
  readonly port: number;
  /** Private host key of the server. */
  readonly hostKey: Buffer;
  /** Looks up the machine of a public key. @param key in SSH's wire format. @returns undefined for an unknown key. */
  readonly holderOf: (key: Buffer) => Promise<KeyHolder | undefined>;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface ReverseServer extends AsyncDisposable {
  readonly port: number;
}

/** Timeouts for the login, and then for requesting the forward, milliseconds. */
const [loginMs, forwardMs] = [10_000, 10_000];
/** Delay of the answer to a failed key, milliseconds; ssh tries each key of its agent. */
const failureMs = 300;
const mostKeysTried = 6;
/** Limit of authentication requests: two for each key (a query, then the signature), and one for the initial `none`. */
const mostQuestions = 2 * mostKeysTried + 1;
/** Limit of the data received before the login, bytes: identification, one key exchange, keys. */
const bytesBeforeLogin = 64 * 1024;
/** Keepalive interval, milliseconds; a dead machine is detected after three intervals. */
const keepaliveMs = 5_000;
/** Interval of log lines about rejected connections, milliseconds. */
const tellMs = 60_000;

/** Starts the SSH server for reverse tunnels. It accepts logins with known keys and one forward (`-R`) per connection, and nothing else: no
 *  sessions, other forwards or passwords. @throws Error when the host key is invalid, or the address cannot be listened on. */
export async function startReverseServer(options: ReverseServerOptions): Promise<ReverseServer> {
  const { address, port, hostKey, clock, log } = options;
  const keeper = createDoorkeeper(clock);
  const turnstiles = createTurnstiles(clock);
  const visits = new Map<string, Visitor>();
  const sockets = new Set<Socket>();
  const ssh = new ssh2.Server(
    {
      hostKeys: [hostKey],
      ident: "graftlet",
      keepaliveInterval: keepaliveMs,
      keepaliveCountMax: 2,
      algorithms: listenerAlgorithms,
    },
    (client, { ip, port: from }) => {
      const visitor = visits.get(placeOf(ip, from));
      if (visitor) serve(client, visitor, { ...options, turnstiles });
      else client.end();
    },
  );
  // Connections are injected: this server does not listen itself.
  ssh.on("error", (err: Error) => log.warn({ err }, "SSH server for reverse tunnels failed"));
  const net = createServer((socket) => {
    const visit = keeper.enter(socket.remoteAddress ?? "", () => socket.destroy());
    if (!visit) return void socket.destroy();
    const place = placeOf(socket.remoteAddress, socket.remotePort);
    const late = clock.after(loginMs, () => socket.destroy());
    sockets.add(sendTogether(recycleWrittenBuffers(socket.setNoDelay(true))));
    let bytes = 0;
    const count = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > bytesBeforeLogin) socket.destroy();
    };
    const loggedIn = () => {
      late.cancel();
      socket.off("data", count);
      visit.loggedIn();
    };
    visits.set(place, { loggedIn, socket });
    socket.on("error", () => undefined);
    socket.once("close", () => {
      late.cancel();
      visit.failed();
      visits.delete(place);
      sockets.delete(socket);
    });
    ssh.injectSocket(socket);
    // ssh2 has paused the socket until it listens itself.
    socket.on("data", count);
  });
  await listening(net, address, port);
  // For example too many open files: pending connections are accepted later.
  net.on("error", (err) => log.warn({ err }, "cannot accept reverse connection"));
  const telling = tellOfRefusals(keeper, clock, log);
  return {
    port: (net.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      telling.stop();
      const closed = new Promise((resolve) => net.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

function placeOf(address: string | undefined, port: number | undefined): string {
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
function tellOfRefusals(keeper: Doorkeeper, clock: Clock, log: Logger): { stop(): void } {
  let told = 0;
  const look = () => {
    const refused = keeper.refusals();
    if (refused > told)
      log.warn(
        { refused: refused - told },
        "rejected connections to the reverse-tunnel listener, or closed without a login",
      );
    told = refused;
    timer = clock.after(tellMs, look);
  };
  let timer = clock.after(tellMs, look);
  return { stop: () => timer.cancel() };
}

/** A connection that has not logged in yet. */
interface Visitor {
  readonly socket: Socket;
  loggedIn(): void;
}

interface Serving extends ReverseServerOptions {
  readonly turnstiles: Turnstiles;
}

function serve(client: ServerConnection, visitor: Visitor, options: Serving): void {
  const { loggedIn, socket } = visitor;
  const { clock, log } = options;
  const login = createLogin(client, visitor, options);
  const peer = peerOf(client);
  const exceeded = limitExceeded(`the machine at ${socket.remoteAddress}`);
  limitMessages(peer, clock, exceeded);
  enforceWindows(peer, exceeded);
  client.on("error", (error) => {
    log.debug({ err: error, from: socket.remoteAddress }, "connection to the reverse-tunnel listener failed");
    if (exceedsLimit(error)) socket.destroy();
  });
  client.on("authentication", (ctx) => {
    login.answer(ctx).catch((error: unknown) => {
      log.warn({ err: error }, "cannot look up the key of a reverse connection");
      client.end();
    });
  });
  client.once("ready", () => {
    const holder = login.holder();
    const place = holder && options.turnstiles.enter(holder.name, () => void socket.destroy());
    if (!holder || !place) return void socket.destroy();
    loggedIn();
    welcome(client, { holder, socket, place }, options);
  });
}

interface Login {
  answer(ctx: AuthContext): Promise<void>;
  /** Returns the machine that has logged in. */
  holder(): KeyHolder | undefined;
}

/** Authenticates one connection. The initial `none`, by which a client asks for the supported methods, does not count as a failure. */
function createLogin(client: ServerConnection, { socket }: Visitor, { clock, holderOf }: ReverseServerOptions): Login {
  let holder: KeyHolder | undefined;
  let [questions, tried] = [0, 0];
  const turnAway = async (ctx: AuthContext): Promise<void> => {
    tried += 1;
    await clock.sleep(failureMs);
    if (tried >= mostKeysTried) client.end();
    else ctx.reject(["publickey"]);
  };
  return {
    holder: () => holder,
    async answer(ctx) {
      questions += 1;
      if (questions > mostQuestions) return void socket.destroy();
      if (ctx.method === "none" && questions === 1) return ctx.reject(["publickey"]);
      if (ctx.method !== "publickey") return turnAway(ctx);
      const known = await holderOf(ctx.key.data);
      if (!known || !mayUse(known.key, ctx)) return turnAway(ctx);
      if (ctx.signature) holder = known;
      else nameAlgorithm(ctx);
      ctx.accept();
    },
  };
}

/** Makes the answer name the requested algorithm: ssh2 would name the key's type, which OpenSSH from 10.6 on does not accept for RSA. */
function nameAlgorithm({ key, hashAlgo }: PublicKeyAuthContext): void {
  if (key.algo === "ssh-rsa" && hashAlgo !== undefined) key.algo = `rsa-sha2-${hashAlgo === "sha256" ? "256" : "512"}`;
}

/** True for a query without a signature, and for a valid signature by the key. */
function mayUse(key: ParsedKey, { signature, blob, hashAlgo }: PublicKeyAuthContext): boolean {
  if (signature === undefined) return true;
  // Contrary to its types, ssh2 returns an Error for some malformed signatures.
  const verdict: unknown = blob !== undefined && key.verify(blob, signature, hashAlgo);
  return verdict === true;
}

/** Serves a machine that has logged in: accepts its forward. */
function welcome(
  client: ServerConnection,
  { holder, socket, place }: { readonly holder: KeyHolder; readonly socket: Socket; readonly place: Place },
  { clock, log }: ReverseServerOptions,
): void {
  const about = { machine: holder.name, from: socket.remoteAddress, key: fingerprintOf(holder.key.getPublicSSH()) };
  let dialled: Dialled | undefined;
  const late = clock.after(forwardMs, () => {
    log.warn(about, "closed a reverse connection without a forward: its ssh needs -R 22:127.0.0.1:22");
    client.end();
  });
  client.on("request", (accept, reject, name, info) => {
    if (name !== "tcpip-forward" || dialled) return reject?.();
    late.cancel();
    place.leave();
    // Each channel has to repeat exactly the address and port that were confirmed.
    const port = info.bindPort || anyPort;
    accept?.(port);
    const forward = (signal: AbortSignal) =>
      orDropped(
        opened<ServerChannel>((done) => client.forwardOut(info.bindAddr, port, "127.0.0.1", 0, done)),
        signal,
      );
    dialled = { forward, close: () => void socket.destroy() };
    log.info(about, "accepted reverse connection");
    holder.arrived(dialled);
  });
  socket.once("close", () => {
    late.cancel();
    place.leave();
    if (!dialled) return;
    log.info(about, "reverse connection closed");
    holder.gone(dialled);
  });
}

/** The port that is confirmed if the machine lets the server choose one; nothing listens there. */
const anyPort = 22;

/** Validates the private host key of the listener. @throws Error, a sentence, when the file has none. */
export function hostKeyIn(file: string, data: Buffer): Buffer {
  const key = ssh2.utils.parseKey(data);
  if (key instanceof Error || !key.isPrivateKey())
    throw new Error(
      `${file} is not a usable private key (${key instanceof Error ? messageOf(key) : "it is a public key"}): create one with ssh-keygen -t ed25519 -N ''`,
    );
  return data;
}
