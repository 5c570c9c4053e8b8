import assert from "node:assert/strict";
import { test } from "node:test";
import { createTokenSource } from "../../../src/api/tokens.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { bodyOf, fakeClient, silent } from "./fake-client.ts";
import { pod } from "./pods.ts";

const request = { audience: "", expirationSeconds: 3600 };
const owner = pod("p", { serviceAccountName: "sa" });

/** A server that grants `grantSeconds`, or the requested time. */
function start(grantSeconds?: number) {
  const clock = fakeClock();
  let issued = 0;
  let down = false;
  let forbidden = 0;
  const client = fakeClient((call) => {
    forbidden -= 1;
    if (forbidden >= 0) throw new CodedError("permission_denied", "no relationship found");
    if (down) throw new CodedError("unavailable", "refused");
    issued += 1;
    const { spec } = call.body as { spec: { expirationSeconds: number } };
    const expirationSeconds = grantSeconds ?? spec.expirationSeconds;
    return {
      spec: { expirationSeconds },
      status: {
        token: `t${issued}`,
        expirationTimestamp: new Date(clock.now() + expirationSeconds * 1000).toISOString(),
      },
    };
  });
  const good: string[] = [];
  const signers = { recordValid: (made: string) => void good.push(made) };
  const source = createTokenSource({ client, signers, clock, log: silent });
  const token = async (ask = request) => (await source.token(owner, ask, never)).token;
  return {
    clock,
    client,
    source,
    good,
    token,
    setDown: (value: boolean) => void (down = value),
    forbid: (times: number) => void (forbidden = times),
  };
}

test("binds a token to the pod, and caches it until it is due for refresh", async () => {
  const t = start();
  assert.equal(await t.token(), "t1");
  assert.equal(await t.token(), "t1");
  assert.equal(t.client.calls[0]?.path, "/api/v1/namespaces/ns/serviceaccounts/sa/token");
  assert.deepEqual(bodyOf<{ spec: object }>(t.client, 0).spec, {
    audiences: [],
    expirationSeconds: 3600,
    boundObjectRef: { apiVersion: "v1", kind: "Pod", name: "p", uid: "p-uid" },
  });
  assert.equal(await t.token({ audience: "vault", expirationSeconds: 600 }), "t2", "another audience is another token");
  assert.deepEqual(t.good, ["t1", "t2"]);
});

test("retries once when the authorizer does not know the pod yet", async () => {
  const late = start();
  late.forbid(1);
  const token = late.token();
  await late.clock.advance(250);
  assert.equal(await token, "t1");
  const never = start();
  never.forbid(2);
  const refused = assert.rejects(never.token(), { code: "permission_denied" });
  await never.clock.advance(250);
  await refused;
  assert.equal(never.client.calls.length, 2);
});

test("refreshes when a fifth of the lifetime is left", async () => {
  const t = start();
  await t.token();
  await t.clock.advance(2_879_000);
  assert.equal(await t.token(), "t1");
  await t.clock.advance(1_000);
  assert.equal(await t.token(), "t2");
});

test("refreshes after a day, regardless of the lifetime", async () => {
  const t = start(30 * 86_400);
  await t.token();
  await t.clock.advance(86_399_000);
  assert.equal(await t.token(), "t1");
  await t.clock.advance(1_000);
  assert.equal(await t.token(), "t2");
});

test("uses the old token until it expires if it cannot be refreshed", async () => {
  const t = start();
  await t.token();
  t.setDown(true);
  await t.clock.advance(3_000_000);
  assert.equal(await t.token(), "t1");
  await t.clock.advance(600_000);
  await assert.rejects(t.token(), { code: "unavailable", message: "failed to fetch token: refused" });
});
