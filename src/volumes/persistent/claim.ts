import { CodedError } from "../../lib/errors.ts";
import type { PersistentVolume, PersistentVolumeClaim, Pod } from "../../objects.ts";
import { termMatches } from "../../pod/node-selector.ts";
import { VolumeStepError } from "../failure.ts";
import type { SetUpDeps, VolumePlugin, VolumeReady } from "../plugins/plugin.ts";
import { claimCapacity } from "./claim-status.ts";
import { expandWhileMounting } from "./expansion.ts";
import { persistentPluginFor, pluginNameOf } from "./index.ts";
import type { PersistentVolumePlugin, PublishResult, VolumeUse } from "./plugin.ts";
import { mapDevice } from "./map-device.ts";
import { migratedInlineVolume } from "./migration.ts";
import { type BoundVolume, boundVolume } from "./resolve-claim.ts";

const groupAnnotation = "pv.beta.kubernetes.io/gid";
const optionsAnnotation = "volume.beta.kubernetes.io/mount-options";
const readWriteOncePod = "ReadWriteOncePod";

/** A PersistentVolumeClaim, or a generic ephemeral volume: delegates to the plugin of the bound PersistentVolume.
 *  @see https://kubernetes.io/docs/concepts/storage/persistent-volumes/ */
export const claim: VolumePlugin = {
  refreshes: false,
  async setUp(deps, pod, podVolume, signal) {
    const bound = await boundVolume(deps.claims, pod, podVolume, signal);
    return setUpPersistent(deps, pod, { name: podVolume.name, ...bound }, signal);
  },
};

/** An inline volume of an in-tree type, mounted by the CSI driver that replaces the type.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#csi-migration */
export const migrated: VolumePlugin = {
  refreshes: false,
  async setUp(deps, pod, podVolume, signal) {
    const volume = migratedInlineVolume(pod, podVolume);
    return setUpPersistent(deps, pod, { name: podVolume.name, volume, readOnly: false, isDevice: false }, signal);
  },
};

/** An inline iSCSI volume, handled like a PersistentVolume with the same source. Its Secret is in the pod's namespace.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#iscsi */
export const inlineIscsi: VolumePlugin = {
  refreshes: false,
  async setUp(deps, pod, { name, iscsi: source }, signal) {
    const { secretRef, ...rest } = source ?? { iqn: "", lun: 0, targetPortal: "" };
    const iscsi = { ...rest, ...(secretRef?.name && { secretRef: { name: secretRef.name } }) };
    const volume: PersistentVolume = { metadata: { name }, spec: { iscsi, volumeMode: "Filesystem" } };
    return setUpPersistent(deps, pod, { name, volume, readOnly: source?.readOnly === true, isDevice: false }, signal);
  },
};

/** A persistent volume of a pod, and its name in the pod's spec. An inline volume has no claim. */
type NamedVolume = Omit<BoundVolume, "claim"> & Partial<BoundVolume> & { readonly name: string };

/** Sets up a persistent volume for a pod; expands it beforehand if it has a claim. */
async function setUpPersistent(
  deps: SetUpDeps,
  pod: Pod,
  { claim: claimObject, volume, readOnly, isDevice, name: nameInPod }: NamedVolume,
  signal: AbortSignal,
): Promise<VolumeReady> {
  const { name } = volume.metadata;
  const plugin = persistentPluginFor(volume);
  const unlabelled: VolumeUse = { pod, volume, readOnly, options: mountOptions(volume) };
  const use: VolumeUse = {
    ...unlabelled,
    selinuxLabel: await selinuxLabel(deps, plugin, unlabelled, nameInPod, signal),
  };
  checkNode(deps, volume, isDevice ? "MapVolume" : "MountVolume");
  if (!isDevice) checkOptions(plugin, use);
  const id = plugin.id(volume);
  deps.volumeStates.reserve(id, pod.metadata.uid);
  const { space, ...published } = await deps.volumeStates.serialize(id, async () => {
    checkSinglePod(deps, id, use, isDevice);
    const published = await (isDevice ? mapVolume : mountVolume)(deps, plugin, use, signal);
    // The pod uses the volume from here on, even if the expansion fails.
    deps.volumeStates.markPublished(id, pod.metadata.uid);
    if (claimObject) await expandBeforeUse(deps, plugin, use, claimObject, signal);
    return published;
  });
  const group = annotatedGroup(volume);
  return {
    ...published,
    readOnly,
    ...(claimObject && plugin.expand && !readOnly && { expandableId: id }),
    persistent: {
      name,
      plugin: pluginNameOf(plugin, volume),
      isDevice,
      ...(space && { space }),
      ...(group !== undefined && { group }),
    },
  };
}

/** The SELinux label with which a volume is mounted for its pod. @throws UnprocessedVolumeError if containers or pods need
 *  different labels. */
function selinuxLabel(
  deps: SetUpDeps,
  plugin: PersistentVolumePlugin,
  use: VolumeUse,
  name: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  const { pod, volume } = use;
  const driver = volume.spec?.csi?.driver;
  return deps.selinuxMounts.labelOf(
    {
      pod,
      name,
      volume,
      id: plugin.id(volume),
      plugin: driver === undefined ? plugin.pluginName : `${plugin.pluginName}/${driver}`,
      isSupported: async (stop) => (await plugin.selinux?.isSupported(deps, volume, stop)) ?? false,
      // A new pod has no mounts yet.
      mountedLabel: async (stop) => (deps.fresh ? undefined : plugin.selinux?.mountedLabel(deps, use, stop)),
    },
    signal,
  );
}

async function mountVolume(
  deps: SetUpDeps,
  plugin: PersistentVolumePlugin,
  use: VolumeUse,
  signal: AbortSignal,
): Promise<PublishResult> {
  const staged = await plugin.stage(deps, use, signal);
  return plugin.publish(deps, use, staged, signal).catch((error: unknown) => {
    throw error instanceof VolumeStepError
      ? error
      : new VolumeStepError("MountVolume.SetUp failed", volumeName(use), error);
  });
}

async function mapVolume(
  deps: SetUpDeps,
  plugin: PersistentVolumePlugin,
  use: VolumeUse,
  signal: AbortSignal,
): Promise<PublishResult> {
  if (!plugin.setUpDevice) {
    const why = new CodedError("unimplemented", "failed to find BlockVolumeMapper plugin. Volume plugin is nil.");
    throw new VolumeStepError("MapVolume.FindMapperPluginBySpec failed", volumeName(use), why);
  }
  const { space, ...found } = await plugin.setUpDevice(deps, use, signal);
  return { hostPath: await mapDevice(deps, plugin, use, found, signal), ...(space && { space }) };
}

function volumeName({ volume }: VolumeUse): string {
  return volume.metadata.name;
}

/** Mount options of a volume; the deprecated annotation takes precedence over the field. */
function mountOptions({ metadata, spec }: PersistentVolume): readonly string[] {
  const given = metadata.annotations?.[optionsAnnotation]?.split(",") ?? spec?.mountOptions ?? [];
  return [...new Set(given.filter((option) => option !== ""))].sort();
}

/** @throws VolumeStepError if the volume's node affinity does not match this node. */
function checkNode({ node, nodeName }: SetUpDeps, { metadata, spec }: PersistentVolume, operation: string): void {
  const required = spec?.nodeAffinity?.required;
  if (!required) return;
  const own = node();
  const refuse = (why: string) =>
    new VolumeStepError(
      `${operation}.NodeAffinity check failed`,
      metadata.name,
      new CodedError("failed_precondition", why),
    );
  if (!own) throw refuse(`node ${JSON.stringify(nodeName)} not found`);
  // Only labels are matched: the kubelet ignores field selectors here.
  const labels = { metadata: { name: "", ...(own.metadata.labels && { labels: own.metadata.labels }) } };
  if (!required.nodeSelectorTerms.some((term) => termMatches(term, labels)))
    throw refuse("no matching NodeSelectorTerms");
}

function checkOptions({ supportsMountOptions }: PersistentVolumePlugin, { options, volume }: VolumeUse): void {
  if (supportsMountOptions || options.length === 0) return;
  const why = new CodedError("failed_precondition", "mount options are not supported for this volume type");
  throw new VolumeStepError("MountVolume.MountOptionSupport check failed", volume.metadata.name, why);
}

/** Enforces ReadWriteOncePod.
 *  @see https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes */
function checkSinglePod({ volumeStates }: SetUpDeps, id: string, use: VolumeUse, isDevice: boolean): void {
  const { pod, volume } = use;
  const { metadata, spec } = volume;
  const [mode, ...more] = spec?.accessModes ?? [];
  if (mode !== readWriteOncePod || more.length > 0 || !volumeStates.isUsedByOtherPod(id, pod.metadata.uid)) return;
  const why = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
  const step = isDevice ? "MapVolume.SetUpDevice failed" : "MountVolume.SetUp failed";
  throw new VolumeStepError(step, metadata.name, new CodedError("failed_precondition", why));
}

/** Expands a volume that was resized while no pod used it. The pod gets the volume only afterwards. */
async function expandBeforeUse(
  deps: SetUpDeps,
  plugin: PersistentVolumePlugin,
  use: VolumeUse,
  claimObject: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<void> {
  const { expand } = plugin;
  if (!expand) return;
  const state = deps.expansionStates.stateOf(plugin.id(use.volume), claimCapacity(claimObject));
  try {
    await expandWhileMounting(deps, { use, state, expand }, claimObject, signal);
  } catch (error) {
    const step = use.volume.spec?.volumeMode === "Block" ? "MapVolume.MarkVolumeAsMounted" : "MountVolume.Setup";
    throw new VolumeStepError(`${step} failed while expanding volume`, volumeName(use), error);
  }
}

/** Group of the volume's files according to the administrator's annotation. */
function annotatedGroup({ metadata }: PersistentVolume): bigint | undefined {
  const text = metadata.annotations?.[groupAnnotation] ?? "";
  return /^[+-]?[0-9]+$/.test(text) ? BigInt(text) : undefined;
}
