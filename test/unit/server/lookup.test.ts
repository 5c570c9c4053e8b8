import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { backend, spdy, spdyForward, upgrade } from "./backend.ts";
import { runtimeOf, start } from "./harness.ts";

const pod = aPod({ containers: [aContainer("c")] }, { name: "p", namespace: "ns", uid: "uid-1" });

test("uses the cached container or sandbox, and queries the runtime only if it is gone", async (t) => {
  const served = await backend(t, (socket) => socket.end());
  const c = aContainer("c");
  const seen = observe(
    [aSandbox({ id: "box" })],
    [
      aStatus(c, ContainerState.CONTAINER_RUNNING, { id: "seen" }),
      aStatus(c, ContainerState.CONTAINER_EXITED, { id: "ended" }),
    ],
  );
  const asked: string[] = [];
  let gone = false;
  const runtime = runtimeOf({
    listContainers: () => (asked.push("list"), Promise.resolve([{ id: "new", createdAt: 9n }] as never)),
    exec: ({ containerId }) => {
      asked.push(containerId);
      if (gone && containerId === "seen") return Promise.reject(new CodedError("not_found", "no such container"));
      return Promise.resolve(served.endpoint);
    },
    portForward: ({ podSandboxId }) => (asked.push(podSandboxId), Promise.resolve(served.endpoint)),
  });
  const podCache = { get: () => seen, list: () => [seen] };
  await using server = await start({ pods: [pod], deps: { runtime, podCache } });
  const go = async (path: string, headers = spdy) => (await upgrade(server, path, headers)).socket.destroy();
  await go("/exec/ns/p/c?command=id&output=1");
  await go("/portForward/ns/p", spdyForward);
  assert.deepEqual(asked.splice(0), ["seen", "box"]);
  gone = true;
  await go("/exec/ns/p/c?command=id&output=1");
  assert.deepEqual(asked, ["seen", "list", "new"]);
});
