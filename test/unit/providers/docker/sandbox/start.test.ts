import assert from "node:assert/strict";
import { test } from "node:test";
import { startAndInspect, takeStartInspection } from "../../../../../providers/docker/sandbox/run.ts";
import { sandboxType } from "../../../../../providers/docker/container/names.ts";
import { createdState, inspection, runningState } from "../inspection.ts";
import { type RawCall, rawEngine } from "../raw-engine.ts";

const { signal } = new AbortController();

/** A daemon that starts slowly, with a scripted inspection. */
async function slowStarter(look: typeof createdState) {
  const asked: string[] = [];
  let start: RawCall | undefined;
  const engine = await rawEngine((call) => {
    asked.push(`${call.method} ${call.path}`);
    if (call.method === "POST") {
      start = call;
      return void engine.clock.advance(25);
    }
    call.response.end(JSON.stringify(inspection("box", sandboxType, look)));
    start?.response.writeHead(204).end();
  });
  return { engine, asked };
}

test("inspects a sandbox at its start; the result is returned once, while current", async () => {
  const { engine, asked } = await slowStarter(runningState);
  await using _ = engine;
  await startAndInspect(engine.parts, "box", signal);
  assert.deepEqual(asked, ["POST /containers/box/start", "GET /containers/box/json"]);
  assert.equal(takeStartInspection(engine.parts, "box")?.Id, "box");
  assert.equal(takeStartInspection(engine.parts, "box"), undefined);
  await startAndInspect(engine.parts, "box", signal);
  await engine.clock.advance(1000);
  assert.equal(takeStartInspection(engine.parts, "box"), undefined);
});

test("discards an inspection from before the start", async () => {
  const { engine } = await slowStarter(createdState);
  await using _ = engine;
  await startAndInspect(engine.parts, "box", signal);
  assert.equal(takeStartInspection(engine.parts, "box"), undefined);
});

test("does not inspect after a start that returns at once, or fails", async () => {
  for (const status of [204, 500]) {
    const asked: string[] = [];
    await using engine = await rawEngine(({ method, response }) => {
      asked.push(method);
      response.writeHead(status).end();
    });
    const started = startAndInspect(engine.parts, "box", signal);
    await (status === 204 ? started : assert.rejects(started, { code: "unknown" }));
    await engine.clock.advance(1000);
    assert.deepEqual(asked, ["POST"]);
  }
});
