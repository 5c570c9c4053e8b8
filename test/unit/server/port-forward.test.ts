import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { maxForwarded } from "../../../src/streams/forward-slots.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { backend, upgrade, webSocket } from "./backend.ts";
import { adminToken, ask, runtimeOf, start } from "./harness.ts";

const pod = aPod({ containers: [aContainer("c")] }, { name: "p", namespace: "ns", uid: "uid-1" });

test("counts forwarded ports until some time after they end, but not failed ones", async (t) => {
  const served = await backend(t, (socket) => socket.resume().on("end", () => socket.end()));
  const clock = fakeClock();
  let fails = true;
  const runtime = runtimeOf({
    listPodSandbox: () => Promise.resolve([{ id: "sb", createdAt: 1n }] as never),
    portForward: () => (fails ? Promise.reject(new Error("not now")) : Promise.resolve(served.endpoint)),
  });
  await using server = await start({ pods: [pod], deps: { clock, runtime } });
  const websocket = { ...webSocket, authorization: `Bearer ${adminToken}` };
  const half = Array.from({ length: maxForwarded.toPod / 2 }, (_, index) => index + 1).join(",");
  const path = `/portForward/ns/p?port=${half}`;
  const refusal = () => ask(server, path, { method: "GET", headers: websocket });
  for (let round = 0; round < 3; round++) assert.equal((await refusal()).status, 500);
  fails = false;
  const standing = [await upgrade(server, path, websocket, "GET"), await upgrade(server, path, websocket, "GET")];
  const refused = await refusal();
  assert.deepEqual([refused.status, refused.headers["retry-after"]], [429, "60"]);
  assert.match(refused.body, /connections are forwarded to this pod at a time: close some, then try again$/);
  for (const { socket } of standing) socket.destroy();
  for (const connection of served.connections) if (!connection.destroyed) await once(connection, "close");
  assert.equal((await refusal()).status, 429);
  await clock.advance(2000);
  (await upgrade(server, path, websocket, "GET")).socket.destroy();
});
