import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import { givesBack } from "../lib/give-back.ts";

/** Joins two connections, each way to its own end: they wait for each other, and what breaks one breaks the other. Both are the call's:
 *  nobody else reads what arrives at them.
 *  @throws what broke them. */
export async function joinStreams(one: Duplex, other: Duplex): Promise<void> {
  const [here, there] = [givesBack(one), givesBack(other)];
  await Promise.all([pipeline(here, there), pipeline(there, here)]);
}
