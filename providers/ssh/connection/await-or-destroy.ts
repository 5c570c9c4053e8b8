import type { Duplex } from "node:stream";
import { untilAborted } from "../../../src/lib/runnables.ts";

/** Waits for a connection until the signal aborts; a connection that is established later is closed at once.
 *  @throws the signal's reason, or the error of the connection. */
export async function awaitOrDestroy<T extends Duplex>(connection: Promise<T>, deadline: AbortSignal): Promise<T> {
  try {
    return await untilAborted(connection, deadline);
  } catch (error) {
    void connection.then(
      (late) => late.destroy(),
      () => undefined,
    );
    throw error;
  }
}
