import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";

/** Joins two connections, each way to its own end: they wait for each other, and what breaks one breaks the other.
 *  @throws what broke them. */
export async function joinStreams(one: Duplex, other: Duplex): Promise<void> {
  await Promise.all([pipeline(one, other), pipeline(other, one)]);
}
