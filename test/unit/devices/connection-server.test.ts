import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:http2";
import { test } from "node:test";
import { createRegistrationServer } from "../../../src/devices/registration.ts";
import { createTargetBudget } from "../../../src/lib/target-budget.ts";
import { connectionPair } from "../../../src/streams/pair.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { silent } from "../api/fake-client.ts";

const register = () => Promise.resolve();

test("a plugin may have a hundred calls under way", async (t) => {
  const server = createRegistrationServer({ register, log: silent });
  t.after(() => server.close());
  const [near, far] = connectionPair();
  server.take(near);
  const session = connect("http://plugin", { createConnection: () => far });
  t.after(() => session.destroy());
  const [settings] = (await once(session, "remoteSettings")) as [{ maxConcurrentStreams?: number }];
  assert.equal(settings.maxConcurrentStreams, 100);
});

test("a plugin that exceeds its target's budget loses its connection", async (t) => {
  const budget = createTargetBudget({ clock: fakeClock() });
  const server = createRegistrationServer({ register, budget, log: silent });
  t.after(() => server.close());
  const [near, far] = connectionPair();
  server.take(near);
  budget.spend(512 * 2 ** 20);
  const session = connect("http://plugin", { createConnection: () => far });
  session.on("error", () => undefined);
  far.on("error", () => undefined);
  if (!far.destroyed) await new Promise((resolve) => far.once("close", resolve));
});
