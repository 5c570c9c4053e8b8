import assert from "node:assert/strict";
import { test } from "node:test";
import { run } from "./files.ts";

test("prints every flag as Go's flag library does: with its value from the command line, otherwise with its default", () => {
  const { flags } = run(
    [
      "--config=/config",
      "--max-pods=7",
      "--node-labels=b=2,a=1",
      "--cluster-dns=10.0.0.1,10.0.0.2",
      "--eviction-hard=pid.available<5%,memory.available<1Gi",
      "--register-with-taints=a=b:NoSchedule,c:NoExecute",
      "--manifest-url-header=X-Key:secret",
      "--reserved-memory=1:memory=1Gi",
      "--feature-gates=EnvFiles=false",
      "--sync-frequency=90s",
      "--storage-driver-password=hunter2",
      "--logging-format=text",
      "--vmodule=a=3",
    ],
    { "/config": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\npodsPerCore: 3\n" },
  );
  const shown = (...names: string[]) => names.map((name) => flags[name]);
  assert.deepEqual(shown("config", "max-pods", "node-labels", "cluster-dns"), [
    "/config",
    "7",
    "a=1,b=2",
    "[10.0.0.1,10.0.0.2]",
  ]);
  assert.deepEqual(shown("eviction-hard", "register-with-taints", "manifest-url-header", "reserved-memory"), [
    "memory.available<1Gi,pid.available<5%",
    "a=b:NoSchedule,c=:NoExecute",
    "CLASSIFIED",
    "1:memory=1Gi",
  ]);
  assert.deepEqual(shown("feature-gates", "sync-frequency", "storage-driver-password", "vmodule"), [
    "EnvFiles=false",
    "1m30s",
    "CLASSIFIED",
    "a=3",
  ]);
  // The configuration file does not change flags.
  assert.deepEqual(
    shown("pods-per-core", "root-dir", "storage-driver-user", "kube-reserved", "allowed-unsafe-sysctls"),
    ["0", "/var/lib/kubelet", "", "", "[]"],
  );
});
