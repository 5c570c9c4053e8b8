import assert from "node:assert/strict";
import { test } from "node:test";
import { volumeMounts } from "../../../src/runtime/mounts.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const persistent = (plugin: string) => ({ name: "pv", plugin, isDevice: false });

test("SELinux: relabels CSI volumes and claims, except those that are read-only, hostPath or NFS", () => {
  const volumes = {
    claim: { readOnly: false, persistent: persistent("kubernetes.io/csi") },
    "claim-ro": { readOnly: true, persistent: persistent("kubernetes.io/csi") },
    "claim-host": { readOnly: false, persistent: persistent("kubernetes.io/host-path") },
    "claim-nfs": { readOnly: false, persistent: persistent("kubernetes.io/nfs") },
    "claim-bare": { readOnly: false, unlabelled: true as const, persistent: persistent("kubernetes.io/csi") },
    own: { readOnly: false },
    "own-bare": { readOnly: false, unlabelled: true as const },
    "own-ro": { readOnly: true },
    config: { readOnly: true },
  };
  const names = Object.keys(volumes);
  const container = aContainer("c", { volumeMounts: names.map((name) => ({ name, mountPath: `/${name}` })) });
  const source = (name: string) => {
    if (name === "config") return { configMap: { name } };
    return name.startsWith("own") ? { csi: { driver: "d" } } : { persistentVolumeClaim: { claimName: name } };
  };
  const pod = aPod({ containers: [container], volumes: names.map((name) => ({ name, ...source(name) })) });
  const mounts = volumeMounts({
    pod,
    container,
    mounted: new Map(Object.entries(volumes).map(([name, volume]) => [name, { hostPath: `/vol/${name}`, ...volume }])),
    subPaths: new Map(),
    images: new Map(),
    recursiveReadOnly: false,
    selinux: true,
  });
  assert.deepEqual(
    mounts.filter(({ selinuxRelabel }) => selinuxRelabel).map(({ containerPath }) => containerPath),
    ["/claim", "/own", "/config"],
  );
});
