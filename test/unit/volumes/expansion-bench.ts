import assert from "node:assert/strict";
import { NodeServiceCapability_RPC_Type as Capability } from "../../../src/gen/csi.ts";
import type { PersistentVolume, PersistentVolumeClaim, Volume } from "../../../src/objects.ts";
import { never } from "../../fakes/signals.ts";
import { type Bench, podWith, volumeBench } from "./volume-bench.ts";

/** The pod volume with the claim. */
export const data: Volume = { name: "v", persistentVolumeClaim: { claimName: "data" } };
/** The claim. */
export const metadata = { name: "data", namespace: "default", uid: "u", resourceVersion: "7" };
type Status = NonNullable<PersistentVolumeClaim["status"]>;

/** A claim whose volume the controller has expanded to 2Gi. @param status its status. */
export function claimOf(status: Status = {}, more: PersistentVolumeClaim["spec"] = {}): PersistentVolumeClaim {
  return {
    metadata,
    spec: { volumeName: "pv", accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "2Gi" } }, ...more },
    status: { phase: "Bound", capacity: { storage: "1Gi" }, ...status },
  };
}

export const pending: Status = {
  allocatedResources: { storage: "2Gi" },
  allocatedResourceStatuses: { storage: "NodeResizePending" },
  conditions: [{ type: "FileSystemResizePending", status: "True" }],
};

/** Bench with a claim bound to a volume of the driver `d`, which supports node expansion. */
export function bound(spec: NonNullable<PersistentVolume["spec"]> = {}): Bench {
  const bench = volumeBench();
  bench.claims.set("data", claimOf());
  bench.volumes.set("pv", {
    metadata: { name: "pv" },
    spec: {
      claimRef: metadata,
      capacity: { storage: "1Gi" },
      volumeMode: "Filesystem",
      accessModes: ["ReadWriteOnce"],
      csi: { driver: "d", volumeHandle: "h", fsType: "xfs" },
      ...spec,
    },
  });
  bench.storage.capabilities.add(Capability.EXPAND_VOLUME);
  return bench;
}

/** Resizes the volume, and updates the claim. */
export function grow(bench: Bench, status: Status = pending, size = "2Gi"): void {
  const volume = bench.volumes.get("pv");
  assert.ok(volume);
  bench.volumes.set("pv", { ...volume, spec: { ...volume.spec, capacity: { storage: size } } });
  const claim = bench.claims.get("data");
  assert.ok(claim);
  bench.claims.set("data", { ...claim, status: { ...claim.status, ...status } });
}

export const expansions = ({ storage }: Bench) => storage.calls.filter((call) => call.startsWith("expand "));
export const nodeName = { nodeName: "node" };

/** A pod with the volume mounted, and the volumes stage. */
export async function started(bench: Bench) {
  const stage = bench.start();
  const pod = podWith([data], nodeName);
  await stage.mount(pod, never);
  await bench.clock.advance(0);
  /** Syncs the pod as its worker does. */
  const pass = async () => {
    await bench.clock.advance(10_000);
    await stage.mount(pod, never);
    await bench.clock.advance(0);
  };
  return { stage, pod, pass };
}
