import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { clientCAFromCluster, clientCAFromFile, noClientCA } from "../../../src/certificates/client-ca.ts";
import { createLogger, silentLog } from "../../../src/lib/log.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import { fakeClock } from "../../fakes/clock.ts";

const pem = (name: string) => `-----BEGIN CERTIFICATE-----\n${name}\n-----END CERTIFICATE-----\n`;

test("cluster CA: is undefined until the first response, reports changes, and keeps the last CA on failures, logging only one", async () => {
  const clock = fakeClock();
  let logged = "";
  const log = createLogger(0, { write: (line: string) => void (logged += line) });
  let answer: () => Promise<string | undefined> = () => Promise.resolve(pem("one"));
  const ca = clientCAFromCluster(() => answer(), { clock, log });
  let told = 0;
  const forget = ca.onChange(() => told++);
  assert.equal(ca.current(), undefined);
  const stop = new AbortController();
  const done = ca.run(stop.signal);
  await clock.advance(0);
  assert.deepEqual([ca.current(), told], [pem("one"), 1]);
  await clock.advance(60_000);
  assert.equal(told, 1);
  answer = () => Promise.reject(new Error("API server away"));
  await clock.advance(180_000);
  assert.deepEqual([ca.current(), told], [pem("one"), 1]);
  assert.equal(logged.match(/cannot reload/g)?.length, 1);
  answer = () => Promise.resolve(pem("two"));
  await clock.advance(60_000);
  assert.deepEqual([ca.current(), told], [pem("two"), 2]);
  forget();
  answer = () => Promise.resolve(undefined);
  await clock.advance(60_000);
  assert.deepEqual([ca.current(), told], [undefined, 2]);
  answer = () => Promise.resolve(pem("three"));
  await clock.advance(16_000);
  assert.equal(ca.current(), pem("three"), "none is not believed for a minute");
  stop.abort();
  await done;
});

test("cluster CA: retries a read that times out", async () => {
  const clock = fakeClock();
  const answers = [
    (signal: AbortSignal) => untilAborted(new Promise<string>(() => undefined), signal),
    () => Promise.resolve(undefined),
    () => Promise.resolve(pem("one")),
  ];
  const log = silentLog();
  const ca = clientCAFromCluster(async (signal) => answers.shift()?.(signal), { clock, log });
  const stop = new AbortController();
  const done = ca.run(stop.signal);
  await clock.advance(14_000);
  assert.equal(ca.current(), pem("one"), "10 s for the answer, 1 s and 2 s between");
  stop.abort();
  await done;
});

test("fails to start if the configured CA file is unusable, with an error that names its field", async () => {
  const dir = await mkdtemp(join(tmpdir(), "graftlet-ca-"));
  const deps = { clock: fakeClock(), log: silentLog() };
  const path = join(dir, "ca.crt");
  try {
    await assert.rejects(clientCAFromFile(path, deps), {
      code: "invalid_argument",
      message: /^authentication\.x509\.clientCAFile ".*ca\.crt" cannot be used/,
    });
    await writeFile(path, "no certificate");
    await assert.rejects(clientCAFromFile(path, deps), { code: "invalid_argument", message: /no PEM certificate/ });
    await writeFile(path, pem("one"));
    assert.equal((await clientCAFromFile(path, deps)).current(), pem("one"));
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("a standalone node has no client CA", () => assert.equal(noClientCA.current(), undefined));
