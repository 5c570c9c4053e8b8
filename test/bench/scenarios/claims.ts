import { join } from "node:path";
import { NodeServiceCapability_RPC_Type as Capability } from "../../../src/gen/csi.ts";
import type { CSINode } from "../../../src/objects.ts";
import { claim, localVolume, persistentVolume, storageClass } from "../../harness/claims.ts";
import type { Cluster } from "../../harness/cluster.ts";
import { startTestDriver } from "../../harness/csi-driver.ts";
import { mount } from "../../harness/manifests.ts";
import type { SpecDraft } from "../../harness/pods.ts";
import { type BenchLab, type Scenario, namesOf } from "../bench-lab.ts";
import { clear, end, idlePod, live, numbered } from "../moments.ts";

/** Pods of a turn with each kind of volume. */
const count = 10;
const driver = "bench.csi.graftlet.dev";
/** The volumes of a driver, which stages them, and those that are directories of the machine. */
const kinds = ["driver", "local"] as const;

/** Pods with a claim, one after another: from the wish to Running, and from the deletion to the object's end. */
export const claims: Scenario = async (lab, { who, round }) => {
  const { cluster, ledger, pods } = lab;
  const disks = join(cluster.layout.dir, "disks");
  await makeVolumes(cluster, disks);
  await using stands = await startTestDriver({
    name: driver,
    rootDir: cluster.layout.kubeletRoot,
    disks,
    capabilities: [Capability.STAGE_UNSTAGE_VOLUME],
    run: (argv) => cluster.mustRunInside(argv),
  });
  await shown(cluster);
  for (const kind of kinds) {
    // What the agent asks for only once is asked before.
    const names = numbered(namesOf(`claim-${kind}`, { who, round }), count + 1);
    for (const [index, name] of names.entries()) {
      const { asked, shown: ran } = await live(pods, name, using(lab, `${kind}-${index}`));
      const gone = await end(pods, name);
      if (index === 0) continue;
      ledger.note(`${kind} claim`, who, round, ran - asked);
      ledger.note(`${kind} claim gone`, who, round, gone.shown - gone.asked);
    }
    await clear(pods, names);
  }
  stands.stop();
};

async function makeVolumes(cluster: Cluster, disks: string): Promise<void> {
  const names = kinds.flatMap((kind) => numbered(kind, count + 1));
  await cluster.mustRunInside(["mkdir", "-p", ...names.map((name) => join(disks, name))]);
  const volumes = names.map((name) =>
    name.startsWith("local")
      ? localVolume(name, join(disks, name), cluster.nodeName)
      : persistentVolume(name, { csi: { driver, volumeHandle: name } }),
  );
  const about = {
    apiVersion: "storage.k8s.io/v1",
    kind: "CSIDriver",
    metadata: { name: driver },
    spec: { attachRequired: false },
  };
  await cluster.apply([storageClass, about, ...volumes, ...names.map((name) => claim(name, name))]);
  for (const name of names)
    await cluster.mustKubectl(["wait", "--for=jsonpath={.status.phase}=Bound", `pvc/${name}`, "--timeout=60s"]);
}

async function shown(cluster: Cluster): Promise<void> {
  await cluster.waitFor("the driver to be shown", async () => {
    const node = await cluster.get<CSINode>("csinode", cluster.nodeName);
    return node?.spec.drivers?.some(({ name }) => name === driver) === true;
  });
}

function using({ cluster }: BenchLab, claimName: string): SpecDraft {
  const [container] = idlePod(cluster.nodeName).containers ?? [];
  return idlePod(cluster.nodeName, {
    volumes: [{ name: "v", persistentVolumeClaim: { claimName } }],
    containers: [{ ...container, volumeMounts: [mount("v")] }],
  });
}
