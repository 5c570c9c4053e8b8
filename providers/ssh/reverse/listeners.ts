import ssh2, { type ParsedKey } from "ssh2";
import { readFile } from "node:fs/promises";
import { messageOf, CodedError, codeOfErrno } from "../../../src/lib/errors.ts";
import { joinHostPort } from "../../../src/lib/http-get.ts";
import type { ClockAndLog } from "../../../src/lib/log.ts";
import { hasErrno, errnoOf } from "../../local/errors.ts";
import { readSecretFile } from "../connection/credentials.ts";
import { LinkError } from "../connection/link-state.ts";
import type { ReverseTunnelConfig } from "./config.ts";
import type { EnrolmentDeps } from "./enrolment.ts";
import { type ReverseConnections, createReverseConnections } from "./connections.ts";
import type { ReverseTunnel } from "./tunnel.ts";
import { type KeyOwner, type ReverseServer, parseHostKey, startReverseServer } from "./server.ts";

export interface ReverseNode extends ClockAndLog {
  readonly nodeName: string;
}

/** The reverse-tunnel listeners of a process. Nodes with the same address and port share one listener, which is open from its first use
 *  until its last node is closed. */
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
    /** Accepts enrolments at a listener until the result is disposed. @throws LinkError if the listener cannot be opened. */
    async acceptEnrolments(on: ListenerConfig, deps: EnrolmentDeps): Promise<AsyncDisposable> {
      const { listener, forget } = listenerAt(on);
      return listener.acceptEnrolments(on, deps, forget);
    },
  };
}

/** Address, port and host key of a listener. */
export type ListenerConfig = Omit<ReverseTunnelConfig, "authorizedKeysFile">;

interface NodeEntry extends ReverseNode {
  readonly reverse: ReverseTunnelConfig;
  readonly connections: ReverseConnections;
  /** Returns the public keys of the node's machine; undefined while they cannot be read. */
  readonly keys: () => Promise<PublicKeys | undefined>;
}

/** Minimum interval between reads of a key file, milliseconds: unauthenticated peers can trigger lookups at any rate. */
const minReadIntervalMs = 1_000;

function createKeyReader({ authorizedKeysFile }: ReverseTunnelConfig, { clock, log }: ReverseNode): NodeEntry["keys"] {
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
    const connections = createReverseConnections(node.nodeName, node.clock);
    const entry: NodeEntry = { ...node, reverse, connections, keys: createKeyReader(reverse, node) };
    this.#nodes.add(entry);
    return {
      onConnected: connections.onConnected,
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
        if (!this.#nodes.delete(entry)) return;
        connections.close();
        await this.#closeIfUnused(empty);
      },
    };
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
    const [first = reverse] = [...this.#nodes].map((member) => member.reverse);
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
    for (const { nodeName: name, connections, keys } of this.#nodes) {
      const held = (await keys())?.get(text);
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

/** Public keys, by their base64 in SSH's wire format. */
type PublicKeys = ReadonlyMap<string, ParsedKey>;

/** Reads the public keys of a file in the format of sshd's authorized_keys. Keys with options are refused.
 *  @throws CodedError, a sentence with the file, the line and the remedy.
 *  @see https://man.openbsd.org/sshd.8#AUTHORIZED_KEYS_FILE_FORMAT */
async function readAuthorizedKeys(path: string): Promise<PublicKeys> {
  const text = await readFile(path, "utf8").catch((cause: unknown) => {
    throw new CodedError(
      codeOfErrno(errnoOf(cause)),
      `providerConfig.reverse.authorizedKeysFile cannot be read: ${messageOf(cause)}.`,
      { cause },
    );
  });
  const keys = new Map<string, ParsedKey>();
  for (const [index, line] of text.split("\n").entries()) {
    const entry = line.trim();
    if (entry === "" || entry.startsWith("#")) continue;
    const key = ssh2.utils.parseKey(entry);
    if (key instanceof Error || key.isPrivateKey())
      throw new CodedError(
        "invalid_argument",
        `providerConfig.reverse.authorizedKeysFile: ${path}:${index + 1}: expected a bare public key (as in the .pub file), without options.`,
      );
    keys.set(key.getPublicSSH().toString("base64"), key);
  }
  return keys;
}
