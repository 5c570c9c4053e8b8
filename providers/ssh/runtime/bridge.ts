import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { chargeStream } from "../../../src/lib/target-budget.ts";
import type { Host } from "../../../src/seams/host.ts";
import { splice } from "../../../src/streams/splice.ts";
import { listenLocal } from "../../local/dial.ts";

/** A local socket that is bridged to a socket on the target. */
export interface Bridge extends AsyncDisposable {
  /** Absolute path, in a directory accessible to graftlet's user only. */
  readonly path: string;
}

/** Opens a bridge, for clients that can connect to local sockets only (gRPC). Each connection is forwarded to the target and lasts as long
 *  as the connection there; if that cannot be opened, it is closed at once, as by a stopped server. */
export async function openBridge(host: Pick<Host, "dial" | "budget">, target: string): Promise<Bridge> {
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

async function bridgeOne(
  host: Pick<Host, "dial" | "budget">,
  target: string,
  near: Duplex,
  signal: AbortSignal,
): Promise<void> {
  try {
    const far = await host.dial({ unix: target }, signal);
    const spliced = splice(near, far, signal);
    chargeStream(far, host.budget);
    await spliced;
  } catch {
    // The client sees a closed connection, and retries.
    near.destroy();
  }
}
