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
import { givesBack } from "../../../src/lib/give-back.ts";
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

/** The machine that holds a key. */
export interface KeyHolder {
  readonly name: string;
  readonly key: ParsedKey;
  arrived(connection: Dialled): void;
  gone(connection: Dialled): void;
}

export interface ReverseServerOptions {
  readonly address: string;
  readonly port: number;
  /** Private key that the server shows. */
  readonly hostKey: Buffer;
  /** @param key in SSH's wire format. @returns undefined for one that is nobody's. */
  readonly holderOf: (key: Buffer) => Promise<KeyHolder | undefined>;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface ReverseServer extends AsyncDisposable {
  readonly port: number;
}

/** Time for a login, and after it for the forward, milliseconds. */
const [loginMs, forwardMs] = [10_000, 10_000];
/** A failed key is answered after this time, milliseconds; ssh tries each key of its agent. */
const failureMs = 300;
const mostKeysTried = 6;
/** A login's questions: each key may be asked for before it is shown, after one free `none`. */
const mostQuestions = 2 * mostKeysTried + 1;
/** What a visitor may send before its login, bytes: identification, one key exchange, keys. */
const bytesBeforeLogin = 64 * 1024;
/** A dead machine is noticed after three of them, milliseconds. */
const keepaliveMs = 5_000;
/** How often refused connections are told of, milliseconds. */
const tellMs = 60_000;

/** An SSH server for machines that dial in: it takes logins by known keys and one forward (`-R`) of each connection, and nothing else:
 *  no session, no other forward, no password. @throws Error when the key is none, or the address cannot be listened at. */
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
  // Its connections are passed in: it listens on nothing itself.
  ssh.on("error", (err: Error) => log.warn({ err }, "the SSH server for machines that dial in has failed"));
  const net = createServer((socket) => {
    const visit = keeper.enter(socket.remoteAddress ?? "", () => socket.destroy());
    if (!visit) return void socket.destroy();
    const place = placeOf(socket.remoteAddress, socket.remotePort);
    const late = clock.after(loginMs, () => socket.destroy());
    sockets.add(sendTogether(givesBack(socket.setNoDelay(true))));
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
    // ssh2 has paused it until it listens itself.
    socket.on("data", count);
  });
  await listening(net, address, port);
  // Such as too many open files: those that wait are taken later.
  net.on("error", (err) => log.warn({ err }, "a machine that dials in could not be taken"));
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

/** One line for many. */
function tellOfRefusals(keeper: Doorkeeper, clock: Clock, log: Logger): { stop(): void } {
  let told = 0;
  const look = () => {
    const refused = keeper.refusals();
    if (refused > told)
      log.warn({ refused: refused - told }, "connections to the listener for machines that did not log in");
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
    log.debug({ err: error, from: socket.remoteAddress }, "a connection to the listener for machines failed");
    if (exceedsLimit(error)) socket.destroy();
  });
  client.on("authentication", (ctx) => {
    login.answer(ctx).catch((error: unknown) => {
      log.warn({ err: error }, "a machine's key could not be looked up");
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
  /** Who has logged in. */
  holder(): KeyHolder | undefined;
}

/** One connection's login. The first `none`, by which a client asks what it may show, is free. */
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

/** Has the answer name the algorithm that was asked for: ssh2 would name the key's type, which OpenSSH from 10.6 on does not take for RSA. */
function nameAlgorithm({ key, hashAlgo }: PublicKeyAuthContext): void {
  if (key.algo === "ssh-rsa" && hashAlgo !== undefined) key.algo = `rsa-sha2-${hashAlgo === "sha256" ? "256" : "512"}`;
}

/** True if the key may be shown, or was proved to be held. */
function mayUse(key: ParsedKey, { signature, blob, hashAlgo }: PublicKeyAuthContext): boolean {
  if (signature === undefined) return true;
  // ssh2 returns an Error for some of what is no signature, against its types.
  const verdict: unknown = blob !== undefined && key.verify(blob, signature, hashAlgo);
  return verdict === true;
}

/** Serves a machine that has logged in. */
function welcome(
  client: ServerConnection,
  { holder, socket, place }: { readonly holder: KeyHolder; readonly socket: Socket; readonly place: Place },
  { clock, log }: ReverseServerOptions,
): void {
  const about = { machine: holder.name, from: socket.remoteAddress, key: fingerprintOf(holder.key.getPublicSSH()) };
  let dialled: Dialled | undefined;
  const late = clock.after(forwardMs, () => {
    log.warn(about, "a machine has logged in and forwards nothing: its ssh needs -R 22:127.0.0.1:22");
    client.end();
  });
  client.on("request", (accept, reject, name, info) => {
    if (name !== "tcpip-forward" || dialled) return reject?.();
    late.cancel();
    place.leave();
    // What the machine was told must come back in each channel, to the letter.
    const port = info.bindPort || anyPort;
    accept?.(port);
    const forward = (signal: AbortSignal) =>
      orDropped(
        opened<ServerChannel>((done) => client.forwardOut(info.bindAddr, port, "127.0.0.1", 0, done)),
        signal,
      );
    dialled = { forward, close: () => void socket.destroy() };
    log.info(about, "a machine has dialled in");
    holder.arrived(dialled);
  });
  socket.once("close", () => {
    late.cancel();
    place.leave();
    if (!dialled) return;
    log.info(about, "a machine's connection is gone");
    holder.gone(dialled);
  });
}

/** The port that a machine is told which lets the server choose: nothing listens there. */
const anyPort = 22;

/** The private key of the listener. @throws Error, a sentence, for a file that holds none. */
export function hostKeyIn(file: string, data: Buffer): Buffer {
  const key = ssh2.utils.parseKey(data);
  if (key instanceof Error || !key.isPrivateKey())
    throw new Error(
      `${file} is no private key that can be used (${key instanceof Error ? messageOf(key) : "it is a public one"}): make one with ssh-keygen -t ed25519 -N ''`,
    );
  return data;
}
