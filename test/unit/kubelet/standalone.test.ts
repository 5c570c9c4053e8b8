import assert from "node:assert/strict";
import { test } from "node:test";
import { absentApi } from "../../../src/api/absent.ts";
import { defaultConfiguration } from "../../../src/config/kubelet-configuration.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { loggedEvents, noClientCA, noNode, isStandalone } from "../../../src/kubelet/standalone.ts";
import { never } from "../../fakes/signals.ts";

test("a node is standalone with static pods and without credentials", () => {
  const kubelet = defaultConfiguration();
  const nobody = { kubeconfig: undefined, bootstrapKubeconfig: undefined };
  const own = { ...nobody, kubelet: { ...kubelet, staticPodURL: "http://h/" } };
  assert.deepEqual(
    [
      isStandalone(own, {}),
      isStandalone({ ...nobody, kubelet }, {}),
      isStandalone({ ...own, kubeconfig: "/k" }, {}),
      isStandalone({ ...own, bootstrapKubeconfig: "/b" }, {}),
      isStandalone(own, { KUBERNETES_SERVICE_HOST: "10.0.0.1" }),
    ],
    [true, false, false, false, false],
  );
});

test("rejects API requests at once, and writes events to the log", async () => {
  const api = absentApi();
  const signal = never;
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

test("has no Node and no client CA, and nothing waits for them", async () => {
  await noNode.ready(never);
  assert.deepEqual([noNode.node(), noNode.synced(), noClientCA.current()], [undefined, true, undefined]);
});
