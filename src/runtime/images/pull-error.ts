import { aggregateText } from "../../lib/aggregate.ts";
import { CodedError } from "../../lib/errors.ts";
import { runtimeErrorText } from "../../pod/error-text.ts";

/** Messages of CRI's named pull errors, by their reason, which is a prefix of the error. */
const namedErrors: readonly (readonly [reason: string, why: string])[] = [
  ["RegistryUnavailable", "because the registry is unavailable"],
  ["SignatureValidationFailed", "because the signature validation failed"],
];

/** Joins the errors of several attempts, each text once. */
export function joinedErrorText(errors: readonly unknown[]): string {
  return aggregateText(errors.map(pullErrorText));
}

/** Reason and message of a container's status after its image pull failed. */
export function pullFailure(image: string, errors: readonly unknown[]): { reason: string; message: string } {
  const text = joinedErrorText(errors);
  const [reason, why] = namedErrors.find(([word]) => text.startsWith(word)) ?? [];
  if (reason === undefined) return { reason: "ErrImagePull", message: text };
  return { reason, message: `image pull failed for ${image} ${why}${text.slice(reason.length)}` };
}

/** Text of a pull error, without the code if that is "unknown". (cri-client, remote_image.go) */
function pullErrorText(error: unknown): string {
  return error instanceof CodedError && error.code === "unknown" ? error.message : runtimeErrorText(error);
}
