import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultConfiguration } from "../../../src/config/kubelet-configuration.ts";
import { isStandalone } from "../../../src/process/node-run.ts";

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
