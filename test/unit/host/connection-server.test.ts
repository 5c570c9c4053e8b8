import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:http2";
import { test } from "node:test";
import { createRegistrationServer } from "../../../src/devices/manager.ts";
import { createTargetBudget } from "../../../src/lib/target-budget.ts";
import { connectionPair } from "../../fakes/connection-pair.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { silent } from "../api/fake-client.ts";

const register = () => Promise.resolve();

test("allows a hundred concurrent calls per connection", async (t) => {
  const server = createRegistrationServer({ register, log: silent });
  t.after(() => server.close());
  const [near, far] = connectionPair();
  server.take(near);
  const session = connect("http://plugin", { createConnection: () => far });
  t.after(() => session.destroy());
  const [settings] = (await once(session, "remoteSettings")) as [{ maxConcurrentStreams?: number }];
  assert.equal(settings.maxConcurrentStreams, 100);
});

test("closes the connection of a plugin that exceeds the target's budget", async (t) => {
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
