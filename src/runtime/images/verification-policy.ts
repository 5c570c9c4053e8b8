import { bareName } from "../../pod/image-name.ts";

/** KubeletConfiguration.imagePullCredentialsVerificationPolicy, and preloadedImagesVerificationAllowlist. */
export interface VerificationSettings {
  readonly policy: "NeverVerify" | "NeverVerifyPreloadedImages" | "NeverVerifyAllowlistedImages" | "AlwaysVerify";
  /** Names without tag and digest, or `PREFIX/*`. */
  readonly allowlist: readonly string[];
}

/** True if a pod must prove its access to a present image.
 *  @param pulledByNode the image was recorded as pulled for a pod of this node. */
export type NeedsVerification = (image: string, pulledByNode: boolean) => boolean;

/** @see https://kubernetes.io/docs/concepts/containers/images/#ensureimagepullcredentialverification */
export function verificationBy({ policy, allowlist }: VerificationSettings): NeedsVerification {
  if (policy === "NeverVerify") return () => false;
  if (policy === "AlwaysVerify") return () => true;
  if (policy === "NeverVerifyPreloadedImages") return (_image, pulledByNode) => pulledByNode;
  const prefixes = allowlist.filter((pattern) => pattern.endsWith("/*")).map((pattern) => pattern.slice(0, -1));
  const names = new Set(allowlist);
  return (image) => {
    const name = bareName(image);
    return !names.has(name) && !prefixes.some((prefix) => name.startsWith(prefix));
  };
}
