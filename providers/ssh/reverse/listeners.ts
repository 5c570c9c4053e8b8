import { messageOf } from "../../../src/lib/errors.ts";
import { joinHostPort } from "../../../src/lib/http-get.ts";
import type { ClockAndLog } from "../../../src/lib/log.ts";
import { createSignal } from "../../../src/lib/signal.ts";
import type { ExpectedMachine } from "../../../src/seams/machine-listeners.ts";
import { hasErrno } from "../../local/errors.ts";
import { readSecretFile } from "../connection/credentials.ts";
import { LinkError } from "../connection/link-state.ts";
import { parseAuthorizedKeys, type PublicKeys, readAuthorizedKeys } from "./authorized-keys.ts";
import type { ReverseTunnelConfig } from "./config.ts";
import type { EnrolmentDeps } from "./enrolment.ts";
import { type ReverseConnections, createReverseConnections } from "./connections.ts";
import type { ReverseTunnel } from "./tunnel.ts";
import { type KeyOwner, type ReverseServer, parseHostKey, startReverseServer } from "./server.ts";

export interface ReverseNode extends ClockAndLog {
  readonly nodeName: string;
}

/** A machine whose reverse tunnel is accepted whether or not its node runs. */
export interface Expectation extends ReverseNode {
  /** Called when the machine's connections have changed. */
  readonly onChange: () => void;
}

/** The reverse-tunnel listeners of a process. Nodes with the same address and port share one listener, which is open from its first use
 *  until its last node and expectation have ended. */
export type ReverseListeners = ReturnType<typeof createReverseListeners>;

export function createReverseListeners() {
  const listeners = new Map<string, ReverseListener>();
  const listenerAt = ({ address, port }: ListenerConfig) => {
    const name = joinHostPort(address, port);
    const listener = listeners.get(name) ?? new ReverseListener(name);
    listeners.set(name, listener);
    return { listener, forget: () => void listeners.delete(name) };
  };
  return {
    join(reverse: ReverseTunnelConfig, node: ReverseNode): ReverseTunnel {
      const { listener, forget } = listenerAt(reverse);
      return listener.join(reverse, node, forget);
    },
    /** Accepts the reverse tunnel of a machine while the listener is open for another reason. A node with its name that joins, or has
     *  joined, uses the same connections. */
    expect(on: ListenerConfig, machine: Expectation): ExpectedMachine {
      const { listener, forget } = listenerAt(on);
      return listener.expect(machine, forget);
    },
    /** Accepts enrolments at a listener until the result is disposed. @throws LinkError if the listener cannot be opened. */
    async acceptEnrolments(on: ListenerConfig, deps: EnrolmentDeps): Promise<AsyncDisposable> {
      const { listener, forget } = listenerAt(on);
      return listener.acceptEnrolments(on, deps, forget);
    },
  };
}

/** Address, port and host key of a listener. */
export type ListenerConfig = Omit<ReverseTunnelConfig, "authorizedKeysFile">;

/** The connections of one machine, until neither a node nor an expectation uses them. */
interface NodeEntry extends ReverseNode {
  readonly connections: ReverseConnections;
  /** The node that has joined. */
  joined: JoinedNode | undefined;
  /** Public keys of the machine if it is expected; they take precedence over those of the node that has joined. */
  expected: PublicKeys | undefined;
}

interface JoinedNode {
  readonly reverse: ReverseTunnelConfig;
  /** Returns the public keys of the node's machine; undefined while they cannot be read. */
  readonly keys: () => Promise<PublicKeys | undefined>;
}

/** Minimum interval between reads of a key file, milliseconds: unauthenticated peers can trigger lookups at any rate. */
const minReadIntervalMs = 1_000;

function createKeyReader({ authorizedKeysFile }: ReverseTunnelConfig, { clock, log }: ReverseNode): JoinedNode["keys"] {
  let last: { readonly at: number; readonly keys: Promise<PublicKeys | undefined> } | undefined;
  return () => {
    const now = clock.monotonic();
    if (last === undefined || now - last.at >= minReadIntervalMs)
      last = {
        at: now,
        keys: readAuthorizedKeys(authorizedKeysFile).catch((error: unknown) => {
          log.debug({ err: error }, "cannot read authorized keys for the reverse tunnel");
          return undefined;
        }),
      };
    return last.keys;
  };
}

/** One reverse-tunnel listener and its nodes. */
class ReverseListener {
  readonly #name: string;
  readonly #nodes = new Set<NodeEntry>();
  #enrolment: EnrolmentDeps | undefined;
  #server: Promise<ReverseServer> | undefined;

  constructor(name: string) {
    this.#name = name;
  }

  /** Adds a node to the listener. @param empty called when the listener is no longer used. */
  join(reverse: ReverseTunnelConfig, node: ReverseNode, empty: () => void): ReverseTunnel {
    const entry = this.#entryOf(node, ({ joined, expected }) => !joined && expected !== undefined);
    const joined = { reverse, keys: createKeyReader(reverse, node) };
    entry.joined = joined;
    const { connections } = entry;
    const connected = createSignal();
    const stopFollowing = connections.onConnected(connected.send);
    return {
      onConnected: connected.subscribe,
      reportHostKey: connections.reportHostKey,
      open: async (signal) => {
        await this.#listen(reverse, node);
        try {
          return await connections.open(signal);
        } catch (error) {
          // The likely cause is an unreadable key file, whose error is more useful.
          if (error instanceof LinkError && error.reason === "ReverseTunnelDown")
            await readAuthorizedKeys(reverse.authorizedKeysFile).catch(throwListenError);
          throw error;
        }
      },
      [Symbol.asyncDispose]: async () => {
        if (entry.joined !== joined) return;
        stopFollowing();
        entry.joined = undefined;
        await this.#removeIfUnused(entry, empty);
      },
    };
  }

  /** Accepts the tunnel of a machine until the result is disposed of. @param empty called when the listener is no longer used. */
  expect({ onChange, ...node }: Expectation, empty: () => void): ExpectedMachine {
    const entry = this.#entryOf(node, ({ expected }) => !expected);
    entry.expected = new Map();
    const stopFollowing = entry.connections.onChange(onChange);
    return {
      setKeys(text) {
        try {
          entry.expected = parseAuthorizedKeys(text, `the public keys of ${node.nodeName}`);
        } catch (error) {
          entry.expected = new Map();
          node.log.debug({ err: error }, "cannot read authorized keys for the reverse tunnel");
        }
      },
      arrival: entry.connections.arrival,
      [Symbol.asyncDispose]: async () => {
        stopFollowing();
        entry.expected = undefined;
        await this.#removeIfUnused(entry, empty);
      },
    };
  }

  /** Returns the entry of a node that another one may share; a new one if there is none. */
  #entryOf(node: ReverseNode, isShared: (entry: NodeEntry) => boolean): NodeEntry {
    for (const entry of this.#nodes) if (entry.nodeName === node.nodeName && isShared(entry)) return entry;
    const { nodeName, clock, log } = node;
    const connections = createReverseConnections(nodeName, clock);
    const entry: NodeEntry = { nodeName, clock, log, connections, joined: undefined, expected: undefined };
    this.#nodes.add(entry);
    return entry;
  }

  async #removeIfUnused(entry: NodeEntry, empty: () => void): Promise<void> {
    if (entry.joined || entry.expected || !this.#nodes.delete(entry)) return;
    entry.connections.close();
    await this.#closeIfUnused(empty);
  }

  /** Accepts enrolments until the result is disposed of. @param empty called when the listener is no longer used. */
  async acceptEnrolments(on: ListenerConfig, deps: EnrolmentDeps, empty: () => void): Promise<AsyncDisposable> {
    this.#enrolment = deps;
    const stop = async () => {
      this.#enrolment = undefined;
      await this.#closeIfUnused(empty);
    };
    try {
      await this.#listen(on, deps);
    } catch (error) {
      await stop();
      throw error;
    }
    return { [Symbol.asyncDispose]: stop };
  }

  async #closeIfUnused(empty: () => void): Promise<void> {
    if (this.#nodes.size > 0 || this.#enrolment) return;
    empty();
    const server = await this.#server?.catch(() => undefined);
    await server?.[Symbol.asyncDispose]();
  }

  async #listen(reverse: ListenerConfig, { clock, log }: ClockAndLog): Promise<void> {
    const [first = reverse] = [...this.#nodes].flatMap(({ joined }) => joined?.reverse ?? []);
    if (first.hostKeyFile !== reverse.hostKeyFile)
      throw listenError(
        `another node at ${this.#name} has a different hostKeyFile: set the same file, or another port.`,
      );
    const { address, port, hostKeyFile } = reverse;
    const start = async () => {
      const hostKey = parseHostKey(hostKeyFile, await readSecretFile("reverse.hostKeyFile", hostKeyFile));
      const server = await startReverseServer({
        address,
        port,
        hostKey,
        findKeyOwner: (key) => this.#findKeyOwner(key),
        enrolment: () => this.#enrolment?.handler,
        clock,
        log,
      });
      log.info({ address, port: server.port }, "listening for reverse connections");
      return server;
    };
    const server = (this.#server ??= start());
    try {
      await server;
    } catch (error) {
      if (this.#server === server) this.#server = undefined;
      const taken = hasErrno(error, "EADDRINUSE") ? ": set another port, or stop the program that listens there" : "";
      throw listenError(`${messageOf(error)}${taken}.`, error);
    }
  }

  async #findKeyOwner(key: Buffer): Promise<KeyOwner | undefined> {
    const text = key.toString("base64");
    const holders: KeyOwner[] = [];
    for (const { nodeName: name, connections, joined, expected } of this.#nodes) {
      const held = (expected ?? (await joined?.keys()))?.get(text);
      if (held) holders.push({ name, key: held, onConnected: connections.add, onDisconnected: connections.remove });
    }
    const [holder, another] = holders;
    if (!another) return holder;
    for (const { log } of this.#nodes)
      log.warn(
        { nodes: holders.map(({ name }) => name) },
        "rejected a login: its key belongs to several nodes; give each machine its own key",
      );
    return undefined;
  }
}

function listenError(why: string, cause?: unknown): LinkError {
  return new LinkError(
    "ReverseTunnelDown",
    "failed_precondition",
    `graftlet cannot listen for the machine's reverse connection: ${why}`,
    { cause },
  );
}

function throwListenError(error: unknown): never {
  throw listenError(messageOf(error), error);
}
