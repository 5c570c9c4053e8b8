import { join } from "node:path";
import { NodeServiceCapability_RPC_Type as Capability } from "../../src/gen/csi.ts";
import type { CSINode, PersistentVolumeClaim } from "../../src/objects.ts";
import { claim, persistentVolume, storageClass } from "./claims.ts";
import type { Cluster } from "./cluster.ts";
import { type DriverCall, startTestDriver, type TestDriver } from "./csi-driver.ts";
import { mount } from "./manifests.ts";
import { type Pods, shell, type SpecDraft } from "./pods.ts";

const driverName = "grows.csi.graftlet.dev";

/** Claims of a cluster whose volumes a driver makes grow. */
export interface GrowingClaims extends AsyncDisposable {
  readonly driver: TestDriver;
  /** A folder of the machine's, where its disks are. */
  readonly disks: string;
  /** Starts pods with a new volume of the driver: one of its name, and others. */
  started(name: string, ...others: readonly string[]): Promise<void>;
  /** The volume becomes bigger, 2Gi, and the claim says so as a resizer writes it. */
  grow(name: string): Promise<void>;
  claimNow(name: string): Promise<PersistentVolumeClaim>;
  /** Waits until a claim shows 2Gi, and nothing of the way there. */
  grown(name: string): Promise<void>;
  /** Requests to the driver to make a volume grow. */
  requests(name: string): readonly DriverCall[];
}

/** Spec of a pod that has a claim at /v. */
export function usingClaim(claimName: string, script = "sleep 3600"): SpecDraft {
  return {
    volumes: [{ name: "v", persistentVolumeClaim: { claimName } }],
    containers: [shell(script, { volumeMounts: [mount("v", { mountPath: "/v" })] })],
  };
}

/** Starts the driver on a cluster whose node is Ready, and waits until it is registered. */
export async function openGrowingClaims(cluster: Cluster, pods: Pods): Promise<GrowingClaims> {
  const kubectl = (...args: readonly string[]) => cluster.mustKubectl(args);
  const disks = join(cluster.layout.dir, "disks");
  await cluster.mustRunInside(["mkdir", "-p", disks]);
  const csiDriver = { apiVersion: "storage.k8s.io/v1", kind: "CSIDriver", metadata: { name: driverName } };
  await cluster.apply([storageClass, { ...csiDriver, spec: { attachRequired: false } }]);
  const driver = await startTestDriver({
    name: driverName,
    rootDir: cluster.layout.kubeletRoot,
    disks,
    run: (argv) => cluster.mustRunInside(argv),
    capabilities: [Capability.STAGE_UNSTAGE_VOLUME, Capability.EXPAND_VOLUME],
  });
  await cluster.waitFor("the driver to be shown", async () => {
    const shown = JSON.parse(await kubectl("get", "csinode", cluster.nodeName, "-o", "json")) as CSINode;
    return shown.spec.drivers?.some(({ name }) => name === driverName);
  });
  const patch = (what: string, name: string, body: object, ...more: readonly string[]) =>
    kubectl("patch", what, name, "--type=merge", "-p", JSON.stringify(body), ...more);
  const claimNow = async (name: string) =>
    JSON.parse(await kubectl("get", "pvc", name, "-o", "json")) as PersistentVolumeClaim;
  return {
    driver,
    disks,
    claimNow,
    async started(name, ...others) {
      await cluster.apply([
        persistentVolume(name, { csi: { driver: driverName, volumeHandle: `handle-${name}` } }),
        claim(name, name),
      ]);
      for (const pod of [name, ...others]) await pods.create(pod, usingClaim(name));
      await Promise.all([name, ...others].map((pod) => pods.ready(pod)));
    },
    async grow(name) {
      const show = (storage: string, more: object = {}) => {
        const status = { allocatedResources: { storage: "2Gi" }, allocatedResourceStatuses: { storage }, ...more };
        return patch("pvc", name, { status }, "--subresource=status");
      };
      // Before the volume is bigger: a node that sees that alone takes it for an administrator's work, and makes it grow at once.
      await show("ControllerResizeInProgress");
      await patch("pv", name, { spec: { capacity: { storage: "2Gi" } } });
      await show("NodeResizePending", { conditions: [{ type: "FileSystemResizePending", status: "True" }] });
    },
    async grown(name) {
      await cluster.waitFor(`${name} to have grown`, async () => {
        const { status } = await claimNow(name);
        return status?.capacity?.storage === "2Gi" && !status.allocatedResourceStatuses && !status.conditions;
      });
    },
    requests: (name) =>
      driver.calls.filter((call) => call.method === "NodeExpandVolume" && call.request.volumeId === `handle-${name}`),
    [Symbol.asyncDispose]: () => driver[Symbol.asyncDispose](),
  };
}
