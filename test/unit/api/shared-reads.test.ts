import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError } from "../../../src/api/api-error.ts";
import { createSharedReads } from "../../../src/api/shared-reads.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeClient } from "./fake-client.ts";

const cluster = { name: "one", server: "https://10.0.0.1", skipTLSVerify: false };
const { signal } = new AbortController();

/** Nodes of a process, each with a client of its own. */
function start() {
  const clock = fakeClock();
  const reads = createSharedReads(clock);
  let version = 0;
  const join = (of: typeof cluster = cluster, answer: () => unknown = () => ({ version: ++version })) => {
    const client = fakeClient(answer);
    const reader = reads.openWith(of, client);
    return { client, read: (stop = signal) => reader.get<{ version: number }>("/version", { signal: stop }) };
  };
  return { clock, join };
}

test("nodes of a cluster share a response for ten seconds, also if their kubeconfigs name the cluster differently", async () => {
  const { clock, join } = start();
  const [one, other] = [join(), join({ ...cluster, name: "other" })];
  assert.deepEqual(await Promise.all([one.read(), other.read()]), [{ version: 1 }, { version: 1 }]);
  assert.equal(other.client.calls.length, 0);
  await clock.advance(10_000);
  assert.deepEqual(await other.read(), { version: 2 });
});

test("nodes of different clusters share nothing", async () => {
  const { join } = start();
  const [one, other] = [join(), join({ ...cluster, server: "https://10.0.0.2" })];
  assert.deepEqual([await one.read(), await other.read()], [{ version: 1 }, { version: 2 }]);
});

test("a node that is allowed to read does so itself if another one was refused", async () => {
  const { join } = start();
  const refused = join(cluster, () => {
    throw apiError(403, "forbidden");
  });
  const allowed = join();
  const answers = await Promise.allSettled([refused.read(), allowed.read()]);
  assert.deepEqual(
    answers.map(({ status }) => status),
    ["rejected", "fulfilled"],
  );
  assert.deepEqual(await refused.read(), { version: 1 });
});

test("a node that stops ends its own read, not that of the others", async () => {
  const { join } = start();
  const answer = Promise.withResolvers<unknown>();
  const [one, other] = [join(cluster, () => answer.promise), join()];
  const reading = one.read();
  const stop = new AbortController();
  const stopped = other.read(stop.signal);
  stop.abort(new CodedError("cancelled", "the node is stopped"));
  await stopped.catch(() => undefined);
  answer.resolve({ version: 7 });
  assert.deepEqual(await reading, { version: 7 });
});
