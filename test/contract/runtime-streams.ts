import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { AttachRequest, ContainerState, ExecRequest, PortForwardRequest } from "../../src/gen/cri.ts";
import type { ConnectPort, RunCommand, StreamEndpoint, RuntimeEvent } from "../../src/seams/runtime.ts";
import { waitFor } from "../harness/wait.ts";
import { type RuntimeUnderTest, patience, podsOf } from "./runtime-pods.ts";

/** Endpoints of exec, attach and port-forward; events where the runtime has them. */
export function streamContract(current: () => RuntimeUnderTest): void {
  test("exec, attach and port-forward return endpoints that a streaming server answers", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const { sandboxId, containerId } = await pods.runOne(["sleep", "3600"]);
    await speaksHttp(
      await runtime.exec(ExecRequest.fromPartial({ containerId, cmd: ["true"], stdout: true }), patience()),
    );
    await speaksHttp(await runtime.attach(AttachRequest.fromPartial({ containerId, stdout: true }), patience()));
    await speaksHttp(
      await runtime.portForward(PortForwardRequest.fromPartial({ podSandboxId: sandboxId, port: [80] }), patience()),
    );
  });

  test("refuses exec into a container that is not running, before any connection", async () => {
    const { runtime } = current();
    await using pods = podsOf(current());
    const { containerId } = await pods.runOne(["true"]);
    await pods.until(containerId, ContainerState.CONTAINER_EXITED);
    await assert.rejects(
      runtime.exec(ExecRequest.fromPartial({ containerId, cmd: ["true"], stdout: true }), patience()),
    );
  });

  test("streams events that name the container that starts and exits", async (t) => {
    const { runtime } = current();
    if (!runtime.events) return t.skip("this runtime has no events");
    await using pods = podsOf(current());
    const stop = new AbortController();
    const seen: RuntimeEvent[] = [];
    const listening = listen(runtime.events(stop.signal), seen);
    await waitFor("the event stream to stand", () => seen.length > 0);
    assert.deepEqual(seen[0], { kind: "listening" });
    const { containerId } = await pods.runOne(["sh", "-c", "sleep 0.2; exit 1"]);
    await waitFor("an event that names the container", () =>
      seen.some((event) => event.kind === "changed" && event.containerId === containerId),
    );
    await waitFor("the event of its exit", () =>
      seen.some((event) => event.kind === "changed" && event.containerId === containerId && event.exited === true),
    );
    stop.abort();
    await listening;
  });

  test("exec causes no exit events for the container", async (t) => {
    const { runtime } = current();
    if (!runtime.events) return t.skip("this runtime has no events");
    await using pods = podsOf(current());
    const { containerId } = await pods.runOne(["sleep", "3600"]);
    const stop = new AbortController();
    const seen: RuntimeEvent[] = [];
    const listening = listen(runtime.events(stop.signal), seen);
    await waitFor("the event stream to stand", () => seen.length > 0);
    await runtime.execSync(containerId, ["true"], 10, patience());
    await runtime.stopContainer(containerId, 0, patience());
    await waitFor("the event of the container's exit", () =>
      seen.some((event) => event.kind === "changed" && event.containerId === containerId && event.exited === true),
    );
    assert.equal(
      seen.filter((event) => event.kind === "changed" && event.containerId === containerId && event.exited === true)
        .length,
      1,
    );
    stop.abort();
    await listening;
  });
}

async function listen(events: AsyncIterable<RuntimeEvent>, seen: RuntimeEvent[]): Promise<void> {
  for await (const event of events) seen.push(event);
}

/** A runtime without a streaming server returns a function instead. */
async function speaksHttp(endpoint: StreamEndpoint | RunCommand | ConnectPort): Promise<void> {
  if (typeof endpoint === "function") return;
  assert.match(endpoint.path, /^\//);
  const connection = await endpoint.dial(patience());
  connection.write(`GET ${endpoint.path} HTTP/1.1\r\nHost: ${endpoint.host}\r\nConnection: close\r\n\r\n`);
  const [answer] = await once(connection, "data", { signal: patience() });
  assert.match(String(answer), /^HTTP\/1\.1 [2-5]\d\d /);
  connection.destroy();
}
