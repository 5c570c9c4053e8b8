import type { Clock } from "../../../src/lib/clock.ts";
import { messageOf } from "../../../src/lib/errors.ts";
import { joinHostPort } from "../../../src/lib/http-get.ts";
import type { Logger } from "../../../src/lib/log.ts";
import { hasErrno } from "../../local/errors.ts";
import { readSecret } from "../connection/credentials.ts";
import { LinkError } from "../connection/link-state.ts";
import { type PublicKeys, readAuthorizedKeys } from "./authorized-keys.ts";
import type { Reverse } from "./config.ts";
import { type DialledConnections, createDialledConnections } from "./dialled.ts";
import type { ReverseWay } from "./way.ts";
import { type KeyHolder, type ReverseServer, hostKeyIn, startReverseServer } from "./server.ts";

export interface Joining {
  readonly nodeName: string;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The reverse-tunnel listeners of a process. Nodes with the same address and port share one listener, which is open from its first use
 *  until its last node is closed. */
export interface Entrances {
  join(reverse: Reverse, node: Joining): ReverseWay;
}

export function createEntrances(): Entrances {
  const entrances = new Map<string, Entrance>();
  return {
    join(reverse, node) {
      const name = joinHostPort(reverse.address, reverse.port);
      const entrance = entrances.get(name) ?? new Entrance(name);
      entrances.set(name, entrance);
      return entrance.join(reverse, node, () => void entrances.delete(name));
    },
  };
}

interface Member extends Joining {
  readonly reverse: Reverse;
  readonly connections: DialledConnections;
  /** Returns the public keys of the node's machine; undefined while they cannot be read. */
  readonly keys: () => Promise<PublicKeys | undefined>;
}

/** Minimum interval between reads of a key file, milliseconds: unauthenticated peers can trigger lookups at any rate. */
const readEveryMs = 1_000;

function keysOf({ authorizedKeysFile }: Reverse, { clock, log }: Joining): Member["keys"] {
  let last: { readonly at: number; readonly keys: Promise<PublicKeys | undefined> } | undefined;
  return () => {
    const now = clock.monotonic();
    if (last === undefined || now - last.at >= readEveryMs)
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
class Entrance {
  readonly #name: string;
  readonly #nodes = new Set<Member>();
  #server: Promise<ReverseServer> | undefined;

  constructor(name: string) {
    this.#name = name;
  }

  /** @param empty called when the last node has left. */
  join(reverse: Reverse, node: Joining, empty: () => void): ReverseWay {
    const connections = createDialledConnections(node.nodeName, node.clock);
    const member: Member = { ...node, reverse, connections, keys: keysOf(reverse, node) };
    this.#nodes.add(member);
    return {
      onArrival: connections.onArrival,
      judge: connections.judge,
      open: async (signal) => {
        await this.#listen(member);
        try {
          return await connections.open(signal);
        } catch (error) {
          // An unreadable key file is the likely cause: its error is more useful.
          if (error instanceof LinkError && error.reason === "NotDialledIn")
            await readAuthorizedKeys(reverse.authorizedKeysFile).catch(notDialledIn);
          throw error;
        }
      },
      [Symbol.asyncDispose]: async () => {
        if (!this.#nodes.delete(member)) return;
        connections.close();
        if (this.#nodes.size > 0) return;
        empty();
        const server = await this.#server?.catch(() => undefined);
        await server?.[Symbol.asyncDispose]();
      },
    };
  }

  async #listen({ reverse, clock, log }: Member): Promise<void> {
    const [first = reverse] = [...this.#nodes].map((member) => member.reverse);
    if (first.hostKeyFile !== reverse.hostKeyFile)
      throw trouble(`another node at ${this.#name} has a different hostKeyFile: set the same file, or another port.`);
    const { address, port, hostKeyFile } = reverse;
    const start = async () => {
      const hostKey = hostKeyIn(hostKeyFile, await readSecret("reverse.hostKeyFile", hostKeyFile));
      const server = await startReverseServer({
        address,
        port,
        hostKey,
        holderOf: (key) => this.#findKeyOwner(key),
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
      throw trouble(`${messageOf(error)}${taken}.`, error);
    }
  }

  async #findKeyOwner(key: Buffer): Promise<KeyHolder | undefined> {
    const text = key.toString("base64");
    const holders: KeyHolder[] = [];
    for (const { nodeName: name, connections, keys } of this.#nodes) {
      const held = (await keys())?.get(text);
      if (held) holders.push({ name, key: held, arrived: connections.arrived, gone: connections.gone });
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

function trouble(why: string, cause?: unknown): LinkError {
  return new LinkError(
    "NotDialledIn",
    "failed_precondition",
    `graftlet cannot listen for the machine's reverse connection: ${why}`,
    { cause },
  );
}

function notDialledIn(error: unknown): never {
  throw trouble(messageOf(error), error);
}
