import assert from "node:assert/strict";
import { test } from "node:test";
import type { GrpcChannel } from "../../../../providers/cri/client.ts";
import { criContainers } from "../../../../providers/cri/pods.ts";
import { never } from "../../../fakes/signals.ts";

test("a checkpoint gets the requested timeout, but at least that of an ordinary call", async () => {
  const asked: unknown[] = [];
  const call = async (_method: unknown, request: unknown, _signal: unknown, patienceMs: number) =>
    void asked.push([request, patienceMs]);
  const containers = criContainers({ call } as unknown as GrpcChannel, 120_000);
  const of = { containerId: "c", location: "/c.tar" };
  for (const timeout of [0n, 5n, 300n]) await containers.checkpointContainer?.({ ...of, timeout }, never);
  assert.deepEqual(asked, [
    [{ ...of, timeout: 120n }, 120_000],
    [{ ...of, timeout: 120n }, 120_000],
    [{ ...of, timeout: 300n }, 300_000],
  ]);
});
