import assert from "node:assert/strict";
import { test } from "node:test";
import type { PersistentVolume, Volume } from "../../../src/objects.ts";
import { migratedInlineVolume, migratedVolume } from "../../../src/volumes/persistent/migration.ts";
import { podWith } from "./volume-bench.ts";

// The expected values are what k8s.io/csi-translation-lib 0.36.3 returns.

type Metadata = Partial<PersistentVolume["metadata"]>;
type Spec = NonNullable<PersistentVolume["spec"]>;

const translated = (spec: Spec, metadata: Metadata = {}) =>
  migratedVolume({ metadata: { name: "pv", ...metadata }, spec });
const handleOf = (spec: Spec, metadata?: Metadata) => translated(spec, metadata).spec?.csi?.volumeHandle;
const inline = (volume: Omit<Volume, "name">) => migratedInlineVolume(podWith([]), { name: "v", ...volume });

test("a PersistentVolume of each in-tree type becomes a volume of its driver", () => {
  const secret = { name: "s", namespace: "n" };
  const cases: readonly (readonly [Spec, object, Metadata?])[] = [
    [
      { awsElasticBlockStore: { volumeID: "aws://z/vol-1", fsType: "ext4", partition: 2, readOnly: true } },
      {
        driver: "ebs.csi.aws.com",
        volumeHandle: "vol-1",
        fsType: "ext4",
        readOnly: true,
        volumeAttributes: { partition: "2" },
      },
    ],
    [
      { azureDisk: { diskName: "n", diskURI: "/u/n", cachingMode: "None", fsType: "xfs" } },
      {
        driver: "disk.csi.azure.com",
        volumeHandle: "/u/n",
        fsType: "xfs",
        volumeAttributes: { cachingmode: "None", fstype: "xfs", kind: "Managed" },
      },
    ],
    [
      { azureFile: { secretName: "azure-storage-account-acc-secret", shareName: "s" }, claimRef: { namespace: "ns" } },
      {
        driver: "file.csi.azure.com",
        volumeHandle: "rg#acc#s#pv#ns",
        nodeStageSecretRef: { name: "azure-storage-account-acc-secret", namespace: "ns" },
        volumeAttributes: { sharename: "s" },
      },
      { annotations: { "kubernetes.io/azure-file-resource-group": "rg" } },
    ],
    [
      { cinder: { volumeID: "v", fsType: "ext4" } },
      { driver: "cinder.csi.openstack.org", volumeHandle: "v", fsType: "ext4", volumeAttributes: {} },
    ],
    [
      { gcePersistentDisk: { pdName: "d", partition: 1 } },
      {
        driver: "pd.csi.storage.gke.io",
        volumeHandle: "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
        volumeAttributes: { partition: "1" },
      },
    ],
    [
      { portworxVolume: { volumeID: "v" } },
      {
        driver: "pxd.portworx.com",
        volumeHandle: "v",
        volumeAttributes: {},
        nodeStageSecretRef: secret,
        nodePublishSecretRef: secret,
        nodeExpandSecretRef: secret,
      },
      { annotations: { "openstorage.io/auth-secret-name": "s", "openstorage.io/auth-secret-namespace": "n" } },
    ],
    [
      { vsphereVolume: { volumePath: "[ds] a/b.vmdk", storagePolicyName: "gold" } },
      {
        driver: "csi.vsphere.vmware.com",
        volumeHandle: "[ds] a/b.vmdk",
        volumeAttributes: { storagepolicyname: "gold" },
      },
    ],
  ];
  for (const [spec, csi, metadata] of cases) {
    const volume = translated(spec, metadata);
    assert.deepEqual(volume.spec?.csi, csi);
    assert.deepEqual(
      Object.keys(volume.spec ?? {}).filter((field) => field in spec && field !== "claimRef"),
      [],
    );
  }
});

test("a volume's zones become the driver's topology, from its affinity or its labels", () => {
  const awsElasticBlockStore = { volumeID: "vol-1" };
  const affinityOf = (spec: Spec, metadata?: Metadata) =>
    translated(spec, metadata).spec?.nodeAffinity?.required?.nodeSelectorTerms.map(({ matchExpressions = [] }) =>
      matchExpressions.map(({ key, values = [] }) => `${key} ${values.join()}`),
    );
  const driverZone = "topology.ebs.csi.aws.com/zone";
  const beta = "failure-domain.beta.kubernetes.io";
  const required = (...keys: readonly string[]) => ({
    required: {
      nodeSelectorTerms: [{ matchExpressions: keys.map((key) => ({ key, operator: "In", values: ["a"] })) }],
    },
  });
  assert.deepEqual(
    affinityOf({ awsElasticBlockStore, nodeAffinity: required(`${beta}/zone`, `${beta}/region`, "other") }),
    [[`${driverZone} a`, "topology.kubernetes.io/region a", "other a"]],
  );
  const labels = { "topology.kubernetes.io/zone": "a__b" };
  assert.deepEqual(affinityOf({ awsElasticBlockStore }, { labels }), [[`${driverZone} a,b`]]);
  assert.deepEqual(
    affinityOf({ awsElasticBlockStore, nodeAffinity: required("topology.kubernetes.io/zone") }, { labels }),
    [[`${driverZone} a`]],
  );
  assert.equal(
    affinityOf({ azureFile: { secretName: "s", shareName: "s", secretNamespace: "n" } }, { labels }),
    undefined,
  );
  const region = { "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r" };
  assert.deepEqual(affinityOf({ vsphereVolume: { volumePath: "p" } }, { labels: region }), [
    ["topology.csi.vmware.com/zone z", "topology.csi.vmware.com/region r"],
  ]);
});

test("a GCE persistent disk gets a handle with its zone or region, and one access mode", () => {
  const gcePersistentDisk = { pdName: "d" };
  const inZones = (zones: string) => ({ labels: { "topology.kubernetes.io/zone": zones } });
  const project = "projects/UNSPECIFIED";
  assert.equal(handleOf({ gcePersistentDisk }, inZones("eu-west1-a")), `${project}/zones/eu-west1-a/disks/d`);
  assert.equal(
    handleOf({ gcePersistentDisk }, inZones("eu-west1-a__eu-west1-b")),
    `${project}/regions/eu-west1/disks/d`,
  );
  const modesOf = (...accessModes: string[]) => translated({ gcePersistentDisk, accessModes }).spec?.accessModes;
  assert.deepEqual(modesOf("ReadWriteMany"), ["ReadWriteOnce"]);
  assert.deepEqual(modesOf("ReadOnlyMany"), ["ReadOnlyMany"]);
  assert.deepEqual(modesOf("ReadOnlyMany", "ReadWriteOnce"), ["ReadWriteOnce"]);
});

test("a volume in a pod's spec gets the kubelet's name, handle and access mode", () => {
  const shown = (volume: PersistentVolume) => [
    volume.metadata.name,
    volume.spec?.csi?.volumeHandle,
    volume.spec?.accessModes?.[0],
  ];
  assert.deepEqual(shown(inline({ awsElasticBlockStore: { volumeID: "vol-1" } })), [
    "ebs.csi.aws.com-vol-1",
    "vol-1",
    "ReadWriteOnce",
  ]);
  assert.deepEqual(shown(inline({ gcePersistentDisk: { pdName: "d", readOnly: true } })), [
    "pd.csi.storage.gke.io-d",
    "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
    "ReadOnlyMany",
  ]);
  assert.deepEqual(shown(inline({ azureFile: { secretName: "plain", shareName: "s" } })), [
    "#plain#s#v#default",
    "#plain#s#v#default",
    "ReadWriteMany",
  ]);
  assert.deepEqual(shown(inline({ azureDisk: { diskName: "n", diskURI: "/u/n" } })), ["/u/n", "/u/n", "ReadWriteOnce"]);
});

test("a volume without an equivalent is refused, and other volumes stay as they are", () => {
  const refused = (spec: Spec, why: string) =>
    assert.throws(() => translated(spec), { message: `failed to translate in-tree pv to CSI: ${why}` });
  refused(
    { awsElasticBlockStore: { volumeID: "aws://z/bad" } },
    "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://z/bad)",
  );
  refused(
    { azureDisk: { diskName: "n", diskURI: "u", kind: "Dedicated" } },
    "kind(Dedicated) is not supported in csi migration",
  );
  refused(
    { azureFile: { secretName: "s", shareName: "s" } },
    "could not find a secret namespace in PersistentVolumeSource or ClaimRef",
  );
  const nfs = { metadata: { name: "pv" }, spec: { nfs: { server: "s", path: "/p" } } };
  assert.equal(migratedVolume(nfs), nfs);
});
