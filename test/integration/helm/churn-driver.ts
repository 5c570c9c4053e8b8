import { readFileSync } from "node:fs";
import { join } from "node:path";
import { startTestDriver } from "../../harness/csi-driver.ts";
import type { HelmLab } from "../../harness/helm-lab.ts";
import { readState } from "../../harness/state.ts";
import type { ChurnClaim } from "./churn-kinds.ts";

const name = "slow.csi.test";
const volume = "kept-volume";
const claim = "kept";
/** Where the content of volumes lies on the machine. */
const disks = "/var/lib/slow-disks";
/** Time that each step of a volume takes, milliseconds: long enough for replicas to be killed in the middle of one. */
const stepMs = 2_000;
const steps = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"];

/** A slow CSI driver on a machine, and a claim of one of its volumes. */
export interface ChurnDriver extends ChurnClaim, AsyncDisposable {
  /** The names that pods have appended to the file in the volume. */
  names(): readonly string[];
  /** Mounts of the volume on the machine. */
  mounts(): Promise<readonly string[]>;
}

/** Starts the driver for a node that runs. This process serves the driver's sockets, below the machine's root directory. */
export async function startChurnDriver({ cluster, edge }: HelmLab, machine: string): Promise<ChurnDriver> {
  const holder = readState(edge.layout)?.holder?.pid;
  if (holder === undefined) throw new Error("the machine has no mount namespace");
  const rootDir = `/var/lib/kubelet/${machine}`;
  const files = `/proc/${holder}/root`;
  const driver = await startTestDriver({
    name,
    rootDir: join(files, rootDir),
    disks,
    run: edge.mustInside,
    plugin: { endpoint: join(rootDir, "plugins", name, "csi.sock") },
  });
  for (const step of steps) driver.delay(step, stepMs);
  const capacity = { storage: "1Mi" };
  const common = { accessModes: ["ReadWriteMany"], storageClassName: "" };
  await cluster.apply([
    {
      apiVersion: "storage.k8s.io/v1",
      kind: "CSIDriver",
      metadata: { name },
      spec: { attachRequired: false, podInfoOnMount: false },
    },
    {
      apiVersion: "v1",
      kind: "PersistentVolume",
      metadata: { name: volume },
      spec: { ...common, capacity, csi: { driver: name, volumeHandle: volume } },
    },
    {
      apiVersion: "v1",
      kind: "PersistentVolumeClaim",
      metadata: { name: claim, namespace: "default" },
      spec: { ...common, volumeName: volume, resources: { requests: capacity } },
    },
  ]);
  return {
    machine,
    claim,
    names: () =>
      readFileSync(join(files, disks, volume, "names"), "utf8")
        .split("\n")
        .filter((line) => line !== ""),
    async mounts() {
      const table = await edge.mustInside(["cat", "/proc/self/mountinfo"]);
      return table.split("\n").filter((line) => line.includes(`${disks}/${volume}`));
    },
    [Symbol.asyncDispose]: () => driver[Symbol.asyncDispose](),
  };
}
