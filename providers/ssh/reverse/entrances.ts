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

/** The listeners of a process. Nodes that name the same address and port share one; it listens from the first use to the end of the
 *  last node. */
export interface Entrances {
  join(reverse: Reverse, node: Joining): ReverseWay;
}

/** Creates them. */
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
  /** Keys of the node's machine; undefined while they cannot be read. */
  readonly keys: () => Promise<PublicKeys | undefined>;
}

/** Strangers may ask for keys as often as they like: a file is read at most so often, milliseconds. */
const readEveryMs = 1_000;

function keysOf({ authorizedKeysFile }: Reverse, { clock, log }: Joining): Member["keys"] {
  let last: { readonly at: number; readonly keys: Promise<PublicKeys | undefined> } | undefined;
  return () => {
    const now = clock.monotonic();
    if (last === undefined || now - last.at >= readEveryMs)
      last = {
        at: now,
        keys: readAuthorizedKeys(authorizedKeysFile).catch((error: unknown) => {
          log.debug({ err: error }, "no keys of the node's machine");
          return undefined;
        }),
      };
    return last.keys;
  };
}

/** One listener and its nodes. */
class Entrance {
  readonly #name: string;
  readonly #members = new Set<Member>();
  #server: Promise<ReverseServer> | undefined;

  constructor(name: string) {
    this.#name = name;
  }

  /** @param empty is called when the last member has left. */
  join(reverse: Reverse, node: Joining, empty: () => void): ReverseWay {
    const connections = createDialledConnections(node.nodeName, node.clock);
    const member: Member = { ...node, reverse, connections, keys: keysOf(reverse, node) };
    this.#members.add(member);
    return {
      onArrival: connections.onArrival,
      judge: connections.judge,
      open: async (signal) => {
        await this.#listen(member);
        try {
          return await connections.open(signal);
        } catch (error) {
          // A file of keys that cannot be read lets nobody in.
          if (error instanceof LinkError && error.reason === "NotDialledIn")
            await readAuthorizedKeys(reverse.authorizedKeysFile).catch(notDialledIn);
          throw error;
        }
      },
      [Symbol.asyncDispose]: async () => {
        if (!this.#members.delete(member)) return;
        connections.close();
        if (this.#members.size > 0) return;
        empty();
        const server = await this.#server?.catch(() => undefined);
        await server?.[Symbol.asyncDispose]();
      },
    };
  }

  async #listen({ reverse, clock, log }: Member): Promise<void> {
    const [first = reverse] = [...this.#members].map((member) => member.reverse);
    if (first.hostKeyFile !== reverse.hostKeyFile)
      throw trouble(
        `its hostKeyFile is not that of another node at ${this.#name}: name the same file, or another port.`,
      );
    const { address, port, hostKeyFile } = reverse;
    const start = async () => {
      const hostKey = hostKeyIn(hostKeyFile, await readSecret("reverse.hostKeyFile", hostKeyFile));
      const server = await startReverseServer({
        address,
        port,
        hostKey,
        holderOf: (key) => this.#holderOf(key),
        clock,
        log,
      });
      log.info({ address, port: server.port }, "waiting for machines that dial in");
      return server;
    };
    const server = (this.#server ??= start());
    try {
      await server;
    } catch (error) {
      if (this.#server === server) this.#server = undefined;
      const taken = hasErrno(error, "EADDRINUSE") ? ": name another port, or end what listens there" : "";
      throw trouble(`${messageOf(error)}${taken}.`, error);
    }
  }

  async #holderOf(key: Buffer): Promise<KeyHolder | undefined> {
    const text = key.toString("base64");
    const holders: KeyHolder[] = [];
    for (const { nodeName: name, connections, keys } of this.#members) {
      const held = (await keys())?.get(text);
      if (held) holders.push({ name, key: held, arrived: connections.arrived, gone: connections.gone });
    }
    const [holder, another] = holders;
    if (!another) return holder;
    for (const { log } of this.#members)
      log.warn(
        { nodes: holders.map(({ name }) => name) },
        "a key is that of several nodes' machines, and lets in none: give each its own",
      );
    return undefined;
  }
}

function trouble(why: string, cause?: unknown): LinkError {
  return new LinkError(
    "NotDialledIn",
    "failed_precondition",
    `graftlet cannot wait for the machine to dial in: ${why}`,
    { cause },
  );
}

function notDialledIn(error: unknown): never {
  throw trouble(messageOf(error), error);
}
