import assert from "node:assert/strict";
import { test } from "node:test";
import { absentApi, loggedEvents, noNode, noServices } from "../../../src/api/absent.ts";
import { createLogger } from "../../../src/lib/log.ts";

test("without an API server, rejects requests at once and writes events to the log", async () => {
  const api = absentApi();
  const signal = new AbortController().signal;
  const watching = async () => {
    for await (const event of api.limited(undefined).watch("/api/v1/pods", { signal })) assert.fail(event.type);
  };
  for (const asking of [api.get("/api", { signal }), api.delete("/api", undefined, { signal }), watching()])
    await assert.rejects(asking, { code: "failed_precondition" });
  const lines: string[] = [];
  const events = loggedEvents(createLogger(4, { write: (line) => void lines.push(line) }));
  events.event({ kind: "Pod", namespace: "ns", name: "p" }, "Warning", "Failed", "no image");
  assert.match(lines.join(""), /"about":"Pod\/ns\/p","reason":"Failed","msg":"no image"/);
});

test("without an API server, there is no Node and there are no Services, and callers do not wait for them", async () => {
  await noNode.ready(new AbortController().signal);
  assert.deepEqual([noNode.node(), noNode.synced(), noServices.list()], [undefined, true, []]);
});
