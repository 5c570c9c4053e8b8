import { CodedError } from "../../lib/errors.ts";
import type { PersistentVolume, PersistentVolumeClaim } from "../../objects.ts";
import { termMatches } from "../../pod/node-selector.ts";
import { StepError } from "../failure.ts";
import type { SetUpDeps, VolumeKind } from "../kinds/kind.ts";
import { sizeOf } from "./claim-status.ts";
import { expandWhileMounting } from "./expansion.ts";
import { persistentKindOf, pluginOf } from "./index.ts";
import type { PersistentKind, Published, Use } from "./kind.ts";
import { mapDevice } from "./map-device.ts";
import { boundVolume } from "./resolve.ts";

const groupAnnotation = "pv.beta.kubernetes.io/gid";
const optionsAnnotation = "volume.beta.kubernetes.io/mount-options";
const onePod = "ReadWriteOncePod";

/** A PersistentVolumeClaim, or a generic ephemeral volume: delegates to the plugin of the bound PersistentVolume.
 *  @see https://kubernetes.io/docs/concepts/storage/persistent-volumes/ */
export const claim: VolumeKind = {
  refreshes: false,
  async setUp(deps, pod, given, signal) {
    const { claim: asked, volume, readOnly, isDevice } = await boundVolume(deps.claims, pod, given, signal);
    const { name } = volume.metadata;
    const kind = persistentKindOf(volume);
    const use: Use = { pod, volume, readOnly, options: mountOptions(volume) };
    checkNode(deps, volume, isDevice ? "MapVolume" : "MountVolume");
    if (!isDevice) checkOptions(kind, use);
    const id = kind.id(volume);
    deps.staging.wants(id, pod.metadata.uid);
    const { space, ...published } = await deps.staging.inTurn(id, async () => {
      checkAlone(deps, id, use, isDevice);
      const published = await (isDevice ? mapped : mounted)(deps, kind, use, signal);
      // The pod uses the volume from here on, even if the expansion fails.
      deps.staging.took(id, pod.metadata.uid);
      await grown(deps, kind, use, asked, signal);
      return published;
    });
    const group = groupOfFiles(volume);
    return {
      ...published,
      readOnly,
      ...(kind.expand && !readOnly && { growing: id }),
      persistent: {
        name,
        plugin: pluginOf(kind, volume),
        isDevice,
        ...(space && { space }),
        ...(group !== undefined && { group }),
      },
    };
  },
};

async function mounted(deps: SetUpDeps, kind: PersistentKind, use: Use, signal: AbortSignal): Promise<Published> {
  const staged = await kind.stage(deps, use, signal);
  return kind.publish(deps, use, staged, signal).catch((error: unknown) => {
    throw error instanceof StepError ? error : new StepError("MountVolume.SetUp failed", nameOf(use), error);
  });
}

async function mapped(deps: SetUpDeps, kind: PersistentKind, use: Use, signal: AbortSignal): Promise<Published> {
  if (!kind.device) {
    const why = new CodedError("unimplemented", "failed to find BlockVolumeMapper plugin. Volume plugin is nil.");
    throw new StepError("MapVolume.FindMapperPluginBySpec failed", nameOf(use), why);
  }
  const { space, ...found } = await kind.device(deps, use, signal);
  return { hostPath: await mapDevice(deps, kind, use, found, signal), ...(space && { space }) };
}

function nameOf({ volume }: Use): string {
  return volume.metadata.name;
}

/** Mount options of a volume; the deprecated annotation takes precedence over the field. */
function mountOptions({ metadata, spec }: PersistentVolume): readonly string[] {
  const given = metadata.annotations?.[optionsAnnotation]?.split(",") ?? spec?.mountOptions ?? [];
  return [...new Set(given.filter((option) => option !== ""))].sort();
}

/** @throws StepError if the volume's node affinity does not match this node. */
function checkNode({ node, nodeName }: SetUpDeps, { metadata, spec }: PersistentVolume, operation: string): void {
  const required = spec?.nodeAffinity?.required;
  if (!required) return;
  const own = node();
  const refuse = (why: string) =>
    new StepError(`${operation}.NodeAffinity check failed`, metadata.name, new CodedError("failed_precondition", why));
  if (!own) throw refuse(`node ${JSON.stringify(nodeName)} not found`);
  // Only labels are matched: the kubelet ignores field selectors here.
  const labels = { metadata: { name: "", ...(own.metadata.labels && { labels: own.metadata.labels }) } };
  if (!required.nodeSelectorTerms.some((term) => termMatches(term, labels)))
    throw refuse("no matching NodeSelectorTerms");
}

function checkOptions({ takesMountOptions }: PersistentKind, { options, volume }: Use): void {
  if (takesMountOptions || options.length === 0) return;
  const why = new CodedError("failed_precondition", "mount options are not supported for this volume type");
  throw new StepError("MountVolume.MountOptionSupport check failed", volume.metadata.name, why);
}

/** Enforces ReadWriteOncePod.
 *  @see https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes */
function checkAlone({ staging }: SetUpDeps, id: string, use: Use, isDevice: boolean): void {
  const { pod, volume } = use;
  const { metadata, spec } = volume;
  const [mode, ...more] = spec?.accessModes ?? [];
  if (mode !== onePod || more.length > 0 || !staging.isElsewhere(id, pod.metadata.uid)) return;
  const why = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
  const step = isDevice ? "MapVolume.SetUpDevice failed" : "MountVolume.SetUp failed";
  throw new StepError(step, metadata.name, new CodedError("failed_precondition", why));
}

/** Expands a volume that was resized while no pod used it. The pod gets the volume only afterwards. */
async function grown(
  deps: SetUpDeps,
  kind: PersistentKind,
  use: Use,
  asked: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<void> {
  const { expand } = kind;
  if (!expand) return;
  const growth = deps.growths.of(kind.id(use.volume), sizeOf(asked));
  try {
    await expandWhileMounting(deps, { use, growth, expand }, asked, signal);
  } catch (error) {
    const step = use.volume.spec?.volumeMode === "Block" ? "MapVolume.MarkVolumeAsMounted" : "MountVolume.Setup";
    throw new StepError(`${step} failed while expanding volume`, nameOf(use), error);
  }
}

/** Group of the volume's files according to the administrator's annotation. */
function groupOfFiles({ metadata }: PersistentVolume): bigint | undefined {
  const text = metadata.annotations?.[groupAnnotation] ?? "";
  return /^[+-]?[0-9]+$/.test(text) ? BigInt(text) : undefined;
}
