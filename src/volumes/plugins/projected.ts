import type * as k8s from "@kubernetes/client-node";
import { CodedError } from "../../lib/errors.ts";
import type { Pod, Volume, Wire } from "../../objects.ts";
import { aggregated } from "../../lib/aggregate.ts";
import { fsGroupOf } from "../fs-group.ts";
import { volumeDirectory } from "../paths.ts";
import {
  type VolumeContent,
  type ContentFile,
  cleanPath,
  configMapContent,
  mergeContents,
  secretContent,
} from "../content.ts";
import { writeContent } from "../write-content.ts";
import { downwardAPIContent } from "./downward-api.ts";
import type { VolumeDeps, VolumePlugin } from "./plugin.ts";
import { readConfigMap, readSecret, selectionOf } from "./objects.ts";
import { commonUser } from "../../pod/security.ts";

type Source = Wire<k8s.V1VolumeProjection>;

interface Projection {
  readonly content: VolumeContent;
  readonly refreshAt?: number;
}

const defaultMode = 0o644;
const privateMode = 0o600;
const defaultTokenSeconds = 3600;

/** Several sources in one directory in memory; on equal paths the later source wins.
 *  @see https://kubernetes.io/docs/concepts/storage/projected-volumes/ */
export const projected: VolumePlugin = {
  refreshes: true,
  async setUp(deps, pod, volume, signal) {
    const sources = volume.projected?.sources ?? [];
    const mode = volume.projected?.defaultMode ?? defaultMode;
    const parts = await settleAll(
      sources.map((source, index) => project(deps, { pod, volume, index, source, mode }, signal)),
    );
    const { uid } = pod.metadata;
    const path = volumeDirectory(deps.rootDir, uid, "projected", volume.name);
    const content = mergeContents(parts.map((part) => part.content));
    await writeContent(deps, { pod, volumeName: volume.name, path, inMemory: true }, content, signal);
    const ends = parts.map(({ refreshAt }) => refreshAt).filter((end) => end !== undefined);
    return { hostPath: path, readOnly: true, ...(ends.length > 0 && { refreshAt: Math.min(...ends) }) };
  },
};

/** Results of all sources. @throws all failures in one error. */
async function settleAll<T>(parts: readonly Promise<T>[]): Promise<readonly T[]> {
  const settled = await Promise.allSettled(parts);
  const errors = settled.filter((part) => part.status === "rejected").map(({ reason }): unknown => reason);
  if (errors.length > 0) throw aggregated(errors);
  return settled.filter((part) => part.status === "fulfilled").map(({ value }) => value);
}

interface ProjectedSource {
  readonly pod: Pod;
  readonly volume: Volume;
  readonly index: number;
  readonly source: Source;
  readonly mode: number;
}

async function project(deps: VolumeDeps, from: ProjectedSource, signal: AbortSignal): Promise<Projection> {
  const { pod, source, mode } = from;
  if (source.configMap)
    return {
      content: configMapContent(
        await readConfigMap(deps, pod, source.configMap, signal),
        selectionOf(source.configMap, mode),
      ),
    };
  if (source.secret)
    return {
      content: secretContent(await readSecret(deps, pod, source.secret, signal), selectionOf(source.secret, mode)),
    };
  if (source.downwardAPI) return { content: downwardAPIContent(deps, pod, source.downwardAPI.items ?? [], mode) };
  if (source.serviceAccountToken) return tokenFile(deps, pod, source.serviceAccountToken, mode, signal);
  if (source.clusterTrustBundle) return trustBundleFile(deps, pod, source.clusterTrustBundle, mode, signal);
  if (source.podCertificate) return certificateFiles(deps, from, source.podCertificate);
  throw new CodedError(
    "unimplemented",
    `unsupported projected source: ${Object.keys(source).join(", ") || "none set"}`,
  );
}

async function tokenFile(
  deps: VolumeDeps,
  pod: Pod,
  source: Wire<k8s.V1ServiceAccountTokenProjection>,
  mode: number,
  signal: AbortSignal,
): Promise<Projection> {
  const request = {
    audience: source.audience ?? "",
    expirationSeconds: source.expirationSeconds ?? defaultTokenSeconds,
  };
  const { token, refreshAt } = await deps.tokens.token(pod, request, signal);
  return { content: new Map([[cleanPath(source.path), ownedFile(pod, token, mode)]]), refreshAt };
}

async function trustBundleFile(
  deps: VolumeDeps,
  pod: Pod,
  source: Wire<k8s.V1ClusterTrustBundleProjection>,
  mode: number,
  signal: AbortSignal,
): Promise<Projection> {
  if (source.name === undefined && source.signerName === undefined)
    throw new CodedError(
      "invalid_argument",
      "ClusterTrustBundle projection requires either name or signerName to be set",
    );
  const anchors = await deps.trustBundles.trustAnchors(source, signal);
  return { content: new Map([[cleanPath(source.path), ownedFile(pod, anchors, mode)]]) };
}

/** A key and its certificate chain, in one file or in two. */
function certificateFiles(
  deps: VolumeDeps,
  { pod, volume, index, mode }: ProjectedSource,
  source: Wire<k8s.V1PodCertificateProjection>,
): Projection {
  const { key, certificateChain } = deps.podCertificates.credentials(pod, volume.name, index);
  const files = [
    [source.credentialBundlePath, key + certificateChain],
    [source.keyPath, key],
    [source.certificateChainPath, certificateChain],
  ] as const;
  return {
    content: new Map(files.flatMap(([path, text]) => (path ? [[cleanPath(path), ownedFile(pod, text, mode)]] : []))),
  };
}

/** A file that belongs to the common user of all containers, if there is one; the pod's fsGroup may read it. */
function ownedFile(pod: Pod, text: string, mode: number): ContentFile {
  const user = commonUser(pod.spec);
  const owned = user !== undefined || fsGroupOf(pod) !== undefined;
  return { data: Buffer.from(text), mode: owned ? privateMode : mode, ...(user !== undefined && { uid: user }) };
}
