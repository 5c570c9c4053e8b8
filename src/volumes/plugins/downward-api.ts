import type * as k8s from "@kubernetes/client-node";
import type { Pod, Wire } from "../../objects.ts";
import { podField, resourceField } from "../../pod/fields.ts";
import { aggregated } from "../../lib/aggregate.ts";
import { volumeDirectory } from "../paths.ts";
import { type VolumeContent, type ContentFile, cleanPath } from "../content.ts";
import { writeContent } from "../write-content.ts";
import type { VolumeDeps, VolumePlugin } from "./plugin.ts";

type Item = Wire<k8s.V1DownwardAPIVolumeFile>;

const defaultMode = 0o644;

/** Files of the downward API in memory, updated when the pod's labels and annotations change.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/downward-api/ */
export const downwardAPI: VolumePlugin = {
  refreshes: true,
  async setUp(deps, pod, volume, signal) {
    const { items = [], defaultMode: mode = defaultMode } = volume.downwardAPI ?? {};
    const content = downwardAPIContent(deps, pod, items, mode);
    const { uid } = pod.metadata;
    const path = volumeDirectory(deps.rootDir, uid, "downward-api", volume.name);
    await writeContent(deps, { pod, volumeName: volume.name, path, inMemory: true }, content, signal);
    return { hostPath: path, readOnly: true };
  },
};

/** The files of downward API items; on equal paths the later one wins. @throws all failures in one error. */
export function downwardAPIContent(
  deps: Pick<VolumeDeps, "allocatable">,
  pod: Pod,
  items: readonly Item[],
  mode: number,
): VolumeContent {
  const files = new Map<string, ContentFile>();
  const errors: unknown[] = [];
  // Thousands of items may refer to the same value.
  const values = new Map<string, Buffer>();
  const valueOf = (item: Item): Buffer => {
    const key = JSON.stringify([item.fieldRef?.fieldPath, item.resourceFieldRef]);
    const value = values.get(key) ?? Buffer.from(itemText(deps, pod, item));
    values.set(key, value);
    return value;
  };
  for (const item of items) {
    try {
      files.set(cleanPath(item.path), { data: valueOf(item), mode: item.mode ?? mode });
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length > 0) throw aggregated(errors);
  return files;
}

function itemText(
  { allocatable }: Pick<VolumeDeps, "allocatable">,
  pod: Pod,
  { fieldRef, resourceFieldRef: from }: Item,
): string {
  // Address fields are empty: the pod has no addresses yet when its volumes are set up.
  if (fieldRef) return podField(pod, fieldRef.fieldPath, { hostIPs: [], podIPs: [] });
  if (!from) return "";
  const { resource, containerName, divisor } = from;
  const selector = { resource, ...(containerName && { containerName }), ...(divisor && { divisor }) };
  return resourceField(pod, selector, "", allocatable());
}
