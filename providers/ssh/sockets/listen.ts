import type { Duplex } from "node:stream";
import type { ClientChannel } from "ssh2";
import { CodedError, hasCode, messageOf, throwIfAborted } from "../../../src/lib/errors.ts";
import { createRateLimitedWarning } from "../../../src/lib/rate-limited-warning.ts";
import type { ClockAndLog } from "../../../src/lib/log.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import type { Address, HostFs, HostListener } from "../../../src/seams/host.ts";
import { channelStream } from "../connection/channel-stream.ts";
import type { Connection } from "../connection/connection.ts";
import { formatAddress } from "../../local/dial.ts";
import { type RootListenerOptions, prepareRootListener } from "./listen-as-root.ts";
import type { Link } from "../connection/link.ts";
import type { Privileges } from "../shell/privileges.ts";

export interface ListenerOptions extends RootListenerOptions, ClockAndLog {
  readonly link: Pick<Link, "connection" | "countExchange" | "state">;
  readonly fs: Pick<HostFs, "apply" | "lstat">;
  readonly privileges: (signal: AbortSignal) => Promise<Privileges>;
}

type OnConnection = (connection: Duplex) => void;

/** A connection on the target, for which sshd offers a channel. */
interface OfferedChannel {
  readonly connection: Connection;
  take(): ClientChannel;
  refuse(): void;
}

interface Forwarding {
  readonly address: Address;
  readonly connection: Connection;
  stop(): Promise<void>;
}

const retryDelayMs = 1000;
/** Limit of open connections per listener, and of channels per SSH connection (including sessions and dialled connections). When a channel
 *  is refused, OpenSSH closes the connection on the target. */
const [maxListenerConnections, maxChannels] = [2_048, 4_096];
const fullWarning = "connection limit of a socket on the target reached; refusing further connections";
const closeTimeoutMs = 1_000;

/** Creates `Host.listen`, which binds sockets on the target and forwards their connections over the link. After the link has been
 *  re-established, the sockets are bound again; their earlier connections are lost. */
export function createListeners(options: ListenerOptions) {
  const { fs, clock, log } = options;
  return async (at: Address, onConnection: OnConnection, signal?: AbortSignal): Promise<HostListener> => {
    throwIfAborted(signal);
    const open = new Set<Duplex>();
    const closing = new AbortController();
    const full = createRateLimitedWarning({ log, clock }, fullWarning);
    const accept = ({ connection, take, refuse }: OfferedChannel) => {
      if (open.size >= maxListenerConnections || connection.channels() > maxChannels) {
        full({ address: formatAddress(at), open: open.size });
        return refuse();
      }
      const stream = channelStream(take(), connection);
      open.add(stream);
      stream.once("close", () => open.delete(stream));
      onConnection(stream);
    };
    const stop = signal ? AbortSignal.any([closing.signal, signal]) : closing.signal;
    const bind = async (where: Address): Promise<Forwarding> => {
      const bound = forward(options, accept, where, stop);
      try {
        return await untilAborted(bound, stop);
      } catch (error) {
        void bound.then((late) => late.stop()).catch(() => undefined);
        throw error;
      }
    };
    let forwarding = await bind(at);
    const { address } = forwarding;
    const rebind = async (): Promise<void> => {
      while (!closing.signal.aborted) {
        try {
          if ("unix" in address) await fs.apply([{ kind: "remove", path: address.unix }], closing.signal);
          forwarding = await bind(address);
          return watchLoss();
        } catch (err) {
          // If the link is closed, the listener can never be bound again, even if its owner has not closed it.
          if (closing.signal.aborted || options.link.state().kind === "closed") return;
          // The sshd process of the lost connection may hold the address until it detects the loss.
          if (!hasCode(err, "unavailable"))
            log.warn({ err, address: formatAddress(address) }, "cannot listen on the target; retrying");
          await clock.sleep(retryDelayMs, closing.signal).catch(() => undefined);
        }
      }
    };
    const watchLoss = () => {
      const { lost } = forwarding.connection;
      if (lost.aborted) return void rebind();
      const forget = () => lost.removeEventListener("abort", onLost);
      const onLost = () => {
        // The listener outlives many connections, and must not keep them in memory.
        closing.signal.removeEventListener("abort", forget);
        void rebind();
      };
      lost.addEventListener("abort", onLost, { once: true });
      closing.signal.addEventListener("abort", forget, { once: true });
    };
    const close = async (): Promise<void> => {
      if (closing.signal.aborted) return;
      closing.abort();
      for (const stream of open) stream.destroy();
      const deadline = clock.within(closeTimeoutMs);
      await untilAborted(forwarding.stop(), deadline).catch(() => undefined);
      if ("unix" in address) await fs.apply([{ kind: "remove", path: address.unix }], deadline).catch(() => undefined);
    };
    watchLoss();
    signal?.addEventListener("abort", () => void close(), { once: true, signal: closing.signal });
    return { address, [Symbol.asyncDispose]: close };
  };
}

type Accept = (offered: OfferedChannel) => void;

async function forward(
  options: ListenerOptions,
  accept: Accept,
  at: Address,
  signal: AbortSignal,
): Promise<Forwarding> {
  const { link, fs } = options;
  const connection = await link.connection(signal);
  link.countExchange();
  try {
    if (!("unix" in at)) return await forwardTcp(connection, at, accept);
    const { runAs } = await options.privileges(signal);
    if (runAs !== "sudo") return await forwardUnix(connection, at, accept);
    return await forwardAsRoot(options, { connection, accept }, at, signal);
  } catch (error) {
    if (connection.lost.aborted) throw new CodedError("unavailable", messageOf(error), { cause: error });
    throwIfAborted(signal);
    const taken = "unix" in at ? await exists(fs, at.unix) : await canForward(connection, at.host);
    link.countExchange();
    throw taken
      ? new CodedError("already_exists", `${formatAddress(at)} is already in use on the target`, { cause: error })
      : new CodedError(
          "permission_denied",
          `the target refuses to listen on ${formatAddress(at)}: check that its sshd allows forwarding (AllowTcpForwarding, AllowStreamLocalForwarding)${"unix" in at ? " and is OpenSSH, as dropbear cannot listen on sockets," : ""} and that its user may bind there.`,
          { cause: error },
        );
  }
}

/** Forwards a socket with sudo, since the login user may not bind it. */
async function forwardAsRoot(
  options: ListenerOptions,
  { connection, accept }: { readonly connection: Connection; readonly accept: Accept },
  at: { readonly unix: string },
  signal: AbortSignal,
): Promise<Forwarding> {
  const root = await prepareRootListener(options, await options.privileges(signal));
  if (!root) return forwardUnix(connection, at, accept);
  try {
    const inner = await forwardUnix(connection, { unix: root.inner }, accept);
    await root.open(at.unix, signal);
    const stop = async () => {
      await inner.stop();
      await root[Symbol.asyncDispose]();
    };
    return { address: at, connection, stop };
  } catch (error) {
    await root[Symbol.asyncDispose]();
    throw error;
  }
}

async function forwardTcp(
  connection: Connection,
  { host, port }: { readonly host: string; readonly port: number },
  accept: Accept,
): Promise<Forwarding> {
  const { client } = connection;
  const onConnection = (take: () => ClientChannel, refuse: () => void) => accept({ connection, take, refuse });
  const { port: bound, stop } = await bindTcp(connection, { host, port }, onConnection);
  return {
    address: { host, port: bound },
    connection,
    async stop() {
      await cancelForwarding(connection, (done) => client.unforwardIn(host, bound, done));
      stop();
    },
  };
}

/** Makes the target listen. @param onConnection accepts or refuses a connection.
 *  @returns the port, and a function that removes `onConnection`. */
function bindTcp(
  { client }: Connection,
  { host, port }: { readonly host: string; readonly port: number },
  onConnection: (take: () => ClientChannel, refuse: () => void) => void,
): Promise<{ readonly port: number; stop(): void }> {
  return new Promise((resolve, reject) => {
    client.forwardIn(host, port, (error, bound) => {
      if (error) return reject(error);
      const onTcp = (to: { readonly destPort: number }, take: () => ClientChannel, refuse: () => void) => {
        if (to.destPort === bound) onConnection(take, refuse);
      };
      // A connection may arrive together with the target's answer, so the handler must exist by then.
      client.on("tcp connection", onTcp);
      resolve({ port: bound, stop: () => client.off("tcp connection", onTcp) });
    });
  });
}

async function forwardUnix(connection: Connection, at: { readonly unix: string }, accept: Accept): Promise<Forwarding> {
  const { client } = connection;
  const onUnix = ({ socketPath }: { readonly socketPath: string }, take: () => unknown, refuse: () => void) => {
    // ssh2's types declare a server's channel, but it is a client's, as for TCP.
    if (socketPath === at.unix) accept({ connection, take: () => take() as ClientChannel, refuse });
  };
  client.on("unix connection", onUnix);
  const stop = async () => {
    await cancelForwarding(connection, (done) => client.openssh_unforwardInStreamLocal(at.unix, done));
    client.off("unix connection", onUnix);
  };
  try {
    await new Promise<void>((resolve, reject) => {
      client.openssh_forwardInStreamLocal(at.unix, (error) => (error ? reject(error) : resolve()));
    });
  } catch (error) {
    client.off("unix connection", onUnix);
    throw error;
  }
  return { address: at, connection, stop };
}

/** Cancels a forwarding. Does nothing on a lost connection, whose forwardings have ended. */
async function cancelForwarding({ lost }: Connection, ask: (done: () => void) => unknown): Promise<void> {
  if (!lost.aborted) await new Promise<void>((resolve) => ask(() => resolve()));
}

async function exists(fs: Pick<HostFs, "lstat">, path: string): Promise<boolean> {
  return fs.lstat(path).then(
    () => true,
    () => false,
  );
}

/** True if the target can forward from a port of its own choice, so that a refused port must be in use. */
async function canForward(connection: Connection, host: string): Promise<boolean> {
  try {
    const { port, stop } = await bindTcp(connection, { host, port: 0 }, (_take, refuse) => refuse());
    await cancelForwarding(connection, (done) => connection.client.unforwardIn(host, port, done));
    stop();
    return true;
  } catch {
    return false;
  }
}
