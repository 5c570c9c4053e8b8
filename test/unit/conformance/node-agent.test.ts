import assert from "node:assert/strict";
import { test } from "node:test";
import { stringify } from "yaml";
import { baseConfiguration, kubeletFlags } from "../../conformance/node-agent.ts";
import { nodeOf } from "../config/files.ts";

/** What the suite sets in the configuration that it is given.
 *  @see https://github.com/kubernetes/kubernetes/blob/v1.36.3/test/e2e_node/services/kubelet.go */
const ofSuite = {
  authentication: { anonymous: { enabled: true }, webhook: { enabled: false, cacheTTL: "2m0s" }, x509: {} },
  authorization: { mode: "AlwaysAllow", webhook: { cacheAuthorizedTTL: "5m0s", cacheUnauthorizedTTL: "30s" } },
  readOnlyPort: 10255,
  staticPodPath: "/suite/static-pods1",
  kubeletCgroups: "/kubelet",
  systemCgroups: "/system",
};

test("accepts the command line and configuration with which e2e_node starts a kubelet", () => {
  const config = { ...baseConfiguration({ podCIDR: "10.244.0.0/24" }), ...ofSuite };
  const given =
    "--runtime-cgroups=/docker-daemon --root-dir /var/lib/kubelet --v 4 --config-dir /suite/kubelet.conf.d " +
    "--hostname-override node --container-runtime-endpoint unix:///suite/containerd.sock --config /suite/kubelet-config";
  const argv = [...given.split(" "), ...kubeletFlags({ address: "10.10.0.1" })];
  const files = { "/suite/kubelet-config": stringify(config), "/suite/kubelet.conf.d/notes": "" };
  const { nodeName, nodeIPs, rootDir, kubelet } = nodeOf(argv, files);
  assert.deepEqual([nodeName, nodeIPs, rootDir], ["node", ["10.10.0.1"], "/var/lib/kubelet"]);
  assert.equal(kubelet.authorization.mode, "AlwaysAllow");
  assert.equal(kubelet.authentication.anonymous.enabled, true);
  assert.deepEqual([kubelet.cgroupRoot, kubelet.systemCgroups, kubelet.kubeletCgroups], ["/", "", ""]);
  assert.equal(kubelet.containerRuntimeEndpoint, "unix:///suite/containerd.sock");
});
