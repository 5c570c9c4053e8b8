import { CodedError, messageOf } from "../../lib/errors.ts";
import type { PersistentVolume, Pod, Volume } from "../../objects.ts";
import { migratedTypeOf } from "../../pod/migrated-volume.ts";
import { UnprocessedVolumeError } from "../failure.ts";
import type { CsiSource } from "./csi-expand.ts";

type Spec = NonNullable<PersistentVolume["spec"]>;
type NodeAffinity = NonNullable<Spec["nodeAffinity"]>;
type Requirement = NonNullable<
  NonNullable<NodeAffinity["required"]>["nodeSelectorTerms"][number]["matchExpressions"]
>[number];
type Labels = Readonly<Record<string, string>>;
type Translated = Partial<CsiSource> & Pick<CsiSource, "volumeHandle">;

/** Input of a translation in addition to the source. */
interface Owner {
  /** Name of the PersistentVolume, or of the pod's volume. */
  readonly name: string;
  /** Namespace of the claim, or of the pod. */
  readonly namespace: string | undefined;
  readonly labels: Labels;
  readonly annotations: Labels;
}

/** Translation of an in-tree volume type to its CSI driver. */
interface Translation<Type extends keyof Volume & keyof Spec> {
  readonly driver: string;
  /** The driver's topology keys for a zone and for a region. */
  readonly zoneKey?: string;
  readonly regionKey?: string;
  accessModes?(modes: readonly string[]): string[];
  /** Access mode of an inline volume; ReadWriteOnce if absent. */
  inlineMode?(source: NonNullable<Volume[Type]>): string;
  /** Name of an inline volume; the driver and the handle if absent. */
  inlineName?(source: NonNullable<Volume[Type]>, handle: string): string;
  /** @throws CodedError if the source has no equivalent. */
  source(source: NonNullable<Volume[Type]> | NonNullable<Spec[Type]>, owner: Owner): Translated;
}

const zoneLabel = "topology.kubernetes.io/zone";
const betaZoneLabel = "failure-domain.beta.kubernetes.io/zone";
const regionLabel = "topology.kubernetes.io/region";
const betaRegionLabel = "failure-domain.beta.kubernetes.io/region";
/** Separates zones in a label. */
const zoneDelimiter = "__";
const anyProject = "UNSPECIFIED";

const once = "ReadWriteOnce";
const byReadOnly = ({ readOnly }: { readonly readOnly?: boolean }) => (readOnly ? "ReadOnlyMany" : once);

const translations: { readonly [Type in MigratedType]: Translation<Type> } = {
  awsElasticBlockStore: {
    driver: "ebs.csi.aws.com",
    zoneKey: "topology.ebs.csi.aws.com/zone",
    source: ({ volumeID, readOnly, fsType, partition = 0 }) => ({
      volumeHandle: ebsVolumeId(volumeID),
      ...options({ readOnly, fsType }),
      volumeAttributes: { partition: String(partition) },
    }),
  },
  azureDisk: {
    driver: "disk.csi.azure.com",
    inlineName: ({ diskURI }) => diskURI,
    source: ({ diskURI, readOnly, fsType, kind, cachingMode }) => {
      if (kind !== undefined && kind.toLowerCase() !== "managed")
        throw new CodedError("unimplemented", `kind(${kind}) is not supported in csi migration`);
      const attributes = {
        ...(cachingMode && { cachingmode: cachingMode }),
        ...(fsType !== undefined && { fstype: fsType }),
      };
      return {
        volumeHandle: diskURI,
        ...options({ readOnly, fsType }),
        volumeAttributes: { ...attributes, kind: "Managed" },
      };
    },
  },
  azureFile: {
    driver: "file.csi.azure.com",
    inlineMode: () => "ReadWriteMany",
    inlineName: (_source, handle) => handle,
    source(given, { name, namespace: ownNamespace, annotations }) {
      const { secretName, shareName, readOnly } = given;
      const namespace = ("secretNamespace" in given ? given.secretNamespace : undefined) ?? ownNamespace ?? "";
      if (namespace === "")
        throw new CodedError(
          "invalid_argument",
          "could not find a secret namespace in PersistentVolumeSource or ClaimRef",
        );
      const account = /azure-storage-account-(.+)-secret/.exec(secretName)?.[1] ?? secretName;
      const group = annotations["kubernetes.io/azure-file-resource-group"] ?? "";
      return {
        volumeHandle: [group, account, shareName, name, namespace].join("#"),
        ...options({ readOnly }),
        nodeStageSecretRef: { name: secretName, namespace },
        volumeAttributes: { sharename: shareName },
      };
    },
  },
  cinder: {
    driver: "cinder.csi.openstack.org",
    zoneKey: "topology.cinder.csi.openstack.org/zone",
    source: ({ volumeID, readOnly, fsType }) => ({ volumeHandle: volumeID, ...options({ readOnly, fsType }) }),
  },
  gcePersistentDisk: {
    driver: "pd.csi.storage.gke.io",
    zoneKey: "topology.gke.io/zone",
    // The in-tree plugin treated several access modes as one.
    accessModes: (modes) => [
      modes.length > 0 && modes.every((mode) => mode === "ReadOnlyMany") ? "ReadOnlyMany" : once,
    ],
    inlineMode: byReadOnly,
    inlineName: ({ pdName }) => `pd.csi.storage.gke.io-${pdName}`,
    source: ({ pdName, readOnly, fsType, partition }, { labels }) => ({
      volumeHandle: `projects/${anyProject}/${gceLocation(labels)}/disks/${pdName}`,
      ...options({ readOnly, fsType }),
      volumeAttributes: { partition: partition ? String(partition) : "" },
    }),
  },
  portworxVolume: {
    driver: "pxd.portworx.com",
    inlineMode: byReadOnly,
    source({ volumeID, fsType }, { annotations }) {
      const name = annotations["openstorage.io/auth-secret-name"];
      const namespace = annotations["openstorage.io/auth-secret-namespace"];
      const secret = name !== undefined && namespace !== undefined ? { name, namespace } : undefined;
      const roles = ["nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"] as const;
      return {
        volumeHandle: volumeID,
        ...options({ fsType }),
        ...(secret && Object.fromEntries(roles.map((role) => [role, secret]))),
      };
    },
  },
  vsphereVolume: {
    driver: "csi.vsphere.vmware.com",
    zoneKey: "topology.csi.vmware.com/zone",
    regionKey: "topology.csi.vmware.com/region",
    source: ({ volumePath, fsType, storagePolicyName }) => ({
      volumeHandle: volumePath,
      ...options({ fsType }),
      volumeAttributes: { ...(storagePolicyName && { storagepolicyname: storagePolicyName }) },
    }),
  },
};

type MigratedType = NonNullable<ReturnType<typeof migratedTypeOf>>;

/** Translates a volume of a migrated in-tree type to its CSI driver; volumes of other types are returned unchanged.
 *  @throws UnprocessedVolumeError in the kubelet's words.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#csi-migration */
export function migratedVolume(volume: PersistentVolume): PersistentVolume {
  const { metadata, spec = {} } = volume;
  const type = migratedTypeOf(spec);
  if (!type) return volume;
  const { name, labels = {}, annotations = {} } = metadata;
  const owner = { name, namespace: spec.claimRef?.namespace, labels, annotations };
  const translation: Translation<MigratedType> = translations[type];
  const { [type]: _inTree, ...rest } = spec;
  const affinity = translatedAffinity(translation, labels, spec.nodeAffinity);
  return {
    ...volume,
    spec: {
      ...rest,
      csi: translated(translation, spec[type], owner),
      ...(affinity && { nodeAffinity: affinity }),
      ...(translation.accessModes && { accessModes: translation.accessModes(spec.accessModes ?? []) }),
    },
  };
}

/** Translates an inline volume of an in-tree type to a PersistentVolume of the type's CSI driver.
 *  @throws UnprocessedVolumeError in the kubelet's words. */
export function migratedInlineVolume({ metadata }: Pod, volume: Volume): PersistentVolume {
  const type = migratedTypeOf(volume);
  if (!type)
    throw new UnprocessedVolumeError(
      `could not find in-tree plugin translation logic for ${JSON.stringify(volume.name)}`,
    );
  const translation: Translation<MigratedType> = translations[type];
  const source = volume[type];
  const csi = translated(translation, source, {
    name: volume.name,
    namespace: metadata.namespace,
    labels: {},
    annotations: {},
  });
  const name = source && translation.inlineName?.(source, csi.volumeHandle);
  return {
    metadata: { name: name ?? `${translation.driver}-${csi.volumeHandle}` },
    spec: { csi, accessModes: [(source && translation.inlineMode?.(source)) ?? once], volumeMode: "Filesystem" },
  };
}

function translated(translation: Translation<MigratedType>, source: object | undefined, owner: Owner): CsiSource {
  try {
    const found = translation.source(source as NonNullable<Volume[MigratedType]>, owner);
    return { driver: translation.driver, volumeAttributes: {}, ...found };
  } catch (error) {
    throw new UnprocessedVolumeError(`failed to translate in-tree pv to CSI: ${messageOf(error)}`, error);
  }
}

/** Options without undefined values. */
function options({
  readOnly,
  fsType,
}: {
  readonly readOnly?: boolean | undefined;
  readonly fsType?: string | undefined;
}) {
  return { ...(readOnly && { readOnly }), ...(fsType && { fsType }) };
}

/** The EBS volume ID: `vol-1` for `vol-1` as well as for `aws://ZONE/vol-1`. */
function ebsVolumeId(id: string): string {
  if (!id.startsWith("aws://")) return id;
  const volume = /^aws:\/\/[^/]*\/+(vol-[^/]*)\/*$/.exec(id)?.[1];
  if (volume !== undefined) return volume;
  throw new CodedError(
    "invalid_argument",
    `failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (${id})`,
  );
}

/** The zone of a disk, or the region of one in several zones. */
function gceLocation(labels: Labels): string {
  const zones = (labels[betaZoneLabel] || labels[zoneLabel] || anyProject).split(zoneDelimiter);
  if (zones.length === 1) return `zones/${zones.join()}`;
  const regions = new Set(zones.map((zone) => /^([^-]+-[^-]+)-[^-]+$/.exec(zone)?.[1]));
  const [region] = regions;
  if (regions.size === 1 && region !== undefined) return `regions/${region}`;
  throw new CodedError("invalid_argument", `failed to get region from zones: got: ${zones.join(", ")}`);
}

/** The node affinity with the driver's topology keys; a zone or region that only a label contains is added. */
function translatedAffinity(
  { zoneKey, regionKey }: Translation<MigratedType>,
  labels: Labels,
  affinity: NodeAffinity | undefined,
): NodeAffinity | undefined {
  if (zoneKey === undefined) return affinity;
  const terms = affinity?.required?.nodeSelectorTerms ?? [];
  const isRequired = (key: string) => terms.some((term) => term.matchExpressions?.some((one) => one.key === key));
  const isBeta =
    !isRequired(zoneLabel) && (isRequired(betaZoneLabel) || (!(zoneLabel in labels) && betaZoneLabel in labels));
  const [zone, region] = isBeta ? [betaZoneLabel, betaRegionLabel] : [zoneLabel, regionLabel];
  const newKeys: Labels = { [zone]: zoneKey, [region]: regionKey ?? regionLabel };
  const added = Object.entries({ [zone]: zoneKey, ...(regionKey !== undefined && { [region]: regionKey }) }).flatMap(
    ([label, key]): Requirement[] => {
      const values = (labels[label] ?? "").split(zoneDelimiter).filter((value) => value !== "");
      return isRequired(label) || values.length === 0 ? [] : [{ key, operator: "In", values }];
    },
  );
  if (terms.length === 0 && added.length === 0) return affinity;
  const changed = (terms.length > 0 ? terms : [{}]).map((term) => ({
    ...term,
    matchExpressions: [
      ...(term.matchExpressions ?? []).map((one) => ({ ...one, key: newKeys[one.key] ?? one.key })),
      ...added,
    ],
  }));
  return { required: { nodeSelectorTerms: changed } };
}
