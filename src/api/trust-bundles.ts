import { createHash } from "node:crypto";
import type * as k8s from "@kubernetes/client-node";
import { coalesce } from "../lib/coalesce.ts";
import { CodedError, ignoreNotFound, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { pemBlocks, pemCertificates } from "../lib/pem.ts";
import { onAbort } from "../lib/runnables.ts";
import { createSignal } from "../lib/signal.ts";
import type { ClusterMeta, Pod, Wire } from "../objects.ts";
import { labelsMatch } from "../pod/node-selector.ts";
import type { TrustAnchorSelection } from "../volumes/ports.ts";
import type { ApiClient } from "./client.ts";
import { createReflector, type Reflector } from "./reflector.ts";

type TrustBundle = Omit<Wire<k8s.V1beta1ClusterTrustBundle>, "metadata"> & { metadata: ClusterMeta };

export interface TrustBundlesDeps extends ClockAndLog {
  readonly client: ApiClient;
  /** Feature gate ClusterTrustBundleProjection. */
  readonly enabled: boolean;
}

export type TrustBundles = ReturnType<typeof createTrustBundles>;

const group = "/apis/certificates.k8s.io";
/** Versions with ClusterTrustBundles, the preferred one first. */
const versions = ["v1beta1", "v1alpha1"] as const;
/** Maximum time that a reader waits for the first list, milliseconds; the kubelet's value. */
const firstListTimeoutMs = 10_000;

/** Watches ClusterTrustBundles, but only while a registered pod projects one.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#cluster-trust-bundles */
export function createTrustBundles(deps: TrustBundlesDeps) {
  const { client, clock, enabled } = deps;
  const pods = new Set<string>();
  const changed = createSignal<[uid: string]>();
  /** Orders the certificates of a file differently in each process, so that no program depends on their order. */
  const salt = String(clock.jitter(0, 1));
  let watch: { readonly reflector: Reflector<TrustBundle>; readonly stop: AbortController } | undefined;
  let ended: Promise<unknown> = Promise.resolve();

  const notify = () => watch?.reflector.synced() && pods.forEach((uid) => changed.send(uid));
  const open = coalesce(async () => {
    const version = watch ? undefined : await servedVersion(client, clock.within(firstListTimeoutMs));
    if (version === undefined || watch || pods.size === 0) return;
    const reflector = createReflector<TrustBundle>({
      ...deps,
      path: `${group}/${version}/clustertrustbundles`,
      handler: { replace: notify, changed: notify },
    });
    watch = { reflector, stop: new AbortController() };
    ended = Promise.all([ended, reflector.run(watch.stop.signal)]);
  });
  const close = () => {
    watch?.stop.abort();
    watch = undefined;
  };
  const bundles = async (signal: AbortSignal): Promise<Reflector<TrustBundle>> => {
    if (enabled && !watch) await open();
    const reflector = watch?.reflector;
    if (!reflector)
      throw new CodedError("unimplemented", "ClusterTrustBundle projection is not supported in static kubelet mode");
    await reflector.ready(clock.within(firstListTimeoutMs, signal)).catch(() => undefined);
    if (reflector.synced()) return reflector;
    throw new CodedError("unavailable", "ClusterTrustBundle informer has not yet synced");
  };
  const normalized = (found: readonly TrustBundle[]) => {
    const certificates = new Map(
      found
        .flatMap(({ spec }) => pemBlocks(spec.trustBundle))
        .map((der) => [createHash("sha256").update(salt).update(der).digest("hex"), der] as const),
    );
    return pemCertificates([...certificates].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, der]) => der));
  };

  return {
    name: "trust bundles",
    async trustAnchors(selection: TrustAnchorSelection, signal: AbortSignal) {
      const found = selected(await bundles(signal), selection);
      if (found.length > 0 || selection.optional) return normalized(found);
      throw new CodedError("not_found", missing(selection));
    },
    register({ metadata, spec }: Pod) {
      const projects = spec.volumes?.some(({ projected }) =>
        projected?.sources?.some(({ clusterTrustBundle }) => clusterTrustBundle),
      );
      if (projects) pods.add(metadata.uid);
    },
    unregister(uid: string) {
      if (pods.delete(uid) && pods.size === 0) close();
    },
    /** Calls back with the UID of each registered pod when a bundle changed. */
    onChange: changed.subscribe,
    async run(signal: AbortSignal) {
      await onAbort(signal);
      pods.clear();
      close();
      await ended;
    },
  };
}

/** Returns the version in which the API server serves ClusterTrustBundles; undefined if it does not serve them. */
async function servedVersion(client: ApiClient, signal: AbortSignal): Promise<string | undefined> {
  try {
    for (const version of versions) {
      const list = await ignoreNotFound(
        client.get<{ resources?: readonly { readonly name: string }[] }>(`${group}/${version}`, { signal }),
      );
      if (list?.resources?.some(({ name }) => name === "clustertrustbundles")) return version;
    }
    return undefined;
  } catch (error) {
    const what =
      "failed to ensure informer manager for ClusterTrustBundles: failed to determine which informer manager to choose";
    throw new CodedError("unavailable", `${what}: ${messageOf(error)}`, { cause: error });
  }
}

/** Returns the selected bundles. A missing label selector selects none, an empty one selects all bundles of the signer. */
function selected(bundles: Reflector<TrustBundle>, selection: TrustAnchorSelection): readonly TrustBundle[] {
  const { name, signerName, labelSelector } = selection;
  if (name !== undefined) {
    const bundle = bundles.get(undefined, name);
    return bundle ? [bundle] : [];
  }
  if (!labelSelector) return [];
  return bundles
    .list()
    .filter(({ metadata, spec }) => spec.signerName === signerName && labelsMatch(labelSelector, metadata.labels));
}

function missing({ name }: TrustAnchorSelection): string {
  return name === undefined
    ? "combination of signerName and labelSelector matched zero ClusterTrustBundles"
    : `while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io ${JSON.stringify(name)} not found`;
}
