import type * as k8s from "@kubernetes/client-node";
import type { PersistentVolume, PersistentVolumeClaim, Pod, Wire } from "../objects.ts";

/** Claims of pods and the volumes that they are bound to, read from the API server. Every call throws with the API server's message. */
export interface Claims {
  claim(namespace: string, name: string, signal: AbortSignal): Promise<PersistentVolumeClaim>;
  persistentVolume(name: string, signal: AbortSignal): Promise<PersistentVolume>;
  /** Patches the status of a claim with a strategic merge patch. @returns the updated claim. */
  patchStatus(claim: PersistentVolumeClaim, patch: object, signal: AbortSignal): Promise<PersistentVolumeClaim>;
}

/** Selects ClusterTrustBundles by name, or by signer and labels. */
export type TrustAnchorSelection = Pick<
  Wire<k8s.V1ClusterTrustBundleProjection>,
  "name" | "signerName" | "labelSelector" | "optional"
>;

/** Trust anchors of the cluster. */
export interface TrustBundleSource {
  /** PEM certificates without duplicates; empty if an optional bundle is missing. @throws an error in the kubelet's words. */
  trustAnchors(selection: TrustAnchorSelection, signal: AbortSignal): Promise<string>;
}

/** A private key and its certificate chain, in PEM. */
export interface PodCertificateCredentials {
  readonly key: string;
  readonly certificateChain: string;
}

/** Certificates of pods, issued by signers of the cluster. */
export interface PodCertificateSource {
  /** The credentials for a source of a projected volume. @throws an error in the kubelet's words until they are issued. */
  credentials(pod: Pod, volumeName: string, sourceIndex: number): PodCertificateCredentials;
}
