import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import type { Host } from "../../../src/seams/host.ts";
import { splice } from "../../../src/streams/splice.ts";
import { listenLocal } from "../../local/dial.ts";

/** A socket on graftlet's own machine that leads to one on the target. */
export interface Bridge extends AsyncDisposable {
  /** Absolute path, in a directory that only graftlet's user can enter. */
  readonly path: string;
}

/** Opens the bridge for clients that know local sockets only (gRPC). A connection to it stands as long as the one on the
 *  target; where none can be made there it is closed at once, as by a server that is not running. */
export async function openBridge(host: Pick<Host, "dial">, target: string): Promise<Bridge> {
  const directory = await mkdtemp(join(tmpdir(), "graftlet-"));
  const path = join(directory, "runtime.sock");
  const closing = new AbortController();
  const listener = await listenLocal({ unix: path }, (near) => void bridgeOne(host, target, near, closing.signal));
  return {
    path,
    async [Symbol.asyncDispose]() {
      closing.abort();
      await listener[Symbol.asyncDispose]();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

async function bridgeOne(host: Pick<Host, "dial">, target: string, near: Duplex, signal: AbortSignal): Promise<void> {
  try {
    await splice(near, await host.dial({ unix: target }, signal), signal);
  } catch {
    // The client sees a connection that ended, and asks again: that is its way of hearing of it.
    near.destroy();
  }
}
