import type * as k8s from "@kubernetes/client-node";
import { CodedError } from "../../lib/errors.ts";
import type { Pod, Wire } from "../../objects.ts";
import { podField, resourceField } from "../../pod/fields.ts";
import { volumeDirectory } from "../paths.ts";
import { type Payload, type PayloadFile, checkPath, configMapPayload, secretPayload } from "../payload.ts";
import { place } from "../place.ts";
import { memoryDirectory } from "../tmpfs.ts";
import type { VolumeDeps, VolumeKind } from "./kind.ts";
import { readConfigMap, readSecret, selectionOf } from "./objects.ts";

type Source = Wire<k8s.V1VolumeProjection>;
type DownwardItem = Wire<k8s.V1DownwardAPIVolumeFile>;

interface Projection {
  readonly payload: Payload;
  readonly refreshAt?: number;
}

const openToAll = 0o777;
const defaultMode = 0o644;
const privateMode = 0o600;
const defaultTokenSeconds = 3600;

/** Several sources in one directory, in memory; on equal paths the later one counts.
 *  @see https://kubernetes.io/docs/concepts/storage/projected-volumes/ */
export const projected: VolumeKind = {
  refreshes: true,
  async setUp(deps, pod, volume, signal) {
    const sources = volume.projected?.sources ?? [];
    const mode = volume.projected?.defaultMode ?? defaultMode;
    const parts = await Promise.all(sources.map((source) => project(deps, pod, source, mode, signal)));
    const path = volumeDirectory(deps.rootDir, pod.metadata.uid, "projected", volume.name);
    const payload = new Map(parts.flatMap((part) => [...part.payload]));
    await place(deps, path, payload, () => memoryDirectory(deps, path, { mode: openToAll }, signal), signal);
    const ends = parts.map(({ refreshAt }) => refreshAt).filter((end) => end !== undefined);
    return { hostPath: path, readOnly: true, ...(ends.length > 0 && { refreshAt: Math.min(...ends) }) };
  },
};

async function project(deps: VolumeDeps, pod: Pod, source: Source, mode: number, signal: AbortSignal): Promise<Projection> {
  if (source.configMap) return { payload: configMapPayload(await readConfigMap(deps, pod, source.configMap, signal), selectionOf(source.configMap, mode)) };
  if (source.secret) return { payload: secretPayload(await readSecret(deps, pod, source.secret, signal), selectionOf(source.secret, mode)) };
  if (source.downwardAPI) return { payload: new Map((source.downwardAPI.items ?? []).map((item) => [checkPath(item.path), downwardFile(deps, pod, item, mode)])) };
  if (source.serviceAccountToken) return tokenFile(deps, pod, source.serviceAccountToken, mode, signal);
  throw new CodedError("unimplemented", `projected source ${Object.keys(source).join(", ") || "without a type"} is not served`);
}

function downwardFile({ allocatable }: VolumeDeps, pod: Pod, item: DownwardItem, mode: number): PayloadFile {
  const { fieldRef, resourceFieldRef: resource } = item;
  const text = fieldRef
    ? podField(pod, fieldRef.fieldPath, { hostIPs: [], podIPs: [] })
    : resource
      ? resourceField(pod, { resource: resource.resource, ...(resource.containerName && { containerName: resource.containerName }), ...(resource.divisor && { divisor: resource.divisor }) }, "", allocatable())
      : "";
  return { data: Buffer.from(text), mode: item.mode ?? mode };
}

/** A token's file belongs to the user that all containers run as, where there is one. */
async function tokenFile(deps: VolumeDeps, pod: Pod, source: Wire<k8s.V1ServiceAccountTokenProjection>, mode: number, signal: AbortSignal): Promise<Projection> {
  const request = { audience: source.audience ?? "", expirationSeconds: source.expirationSeconds ?? defaultTokenSeconds };
  const { token, refreshAt } = await deps.tokens.token(pod, request, signal);
  const user = commonUser(pod);
  const file: PayloadFile = user === undefined ? { data: Buffer.from(token), mode } : { data: Buffer.from(token), mode: privateMode, uid: user };
  return { payload: new Map([[checkPath(source.path), file]]), refreshAt };
}

/** The user ID that the spec gives every container, or undefined where they differ or one leaves it to its image. */
function commonUser({ spec }: Pod): number | undefined {
  const containers = [...(spec.initContainers ?? []), ...spec.containers, ...(spec.ephemeralContainers ?? [])];
  const users = new Set(containers.map(({ securityContext }) => securityContext?.runAsUser ?? spec.securityContext?.runAsUser));
  return users.size === 1 ? [...users][0] : undefined;
}
