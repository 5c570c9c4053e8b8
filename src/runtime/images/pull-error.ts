import { messageOf } from "../../lib/errors.ts";
import { runtimeErrorText } from "../error-text.ts";

/** Errors that CRI defines by the word with which their text begins: it has no codes for them.
 *  @see https://github.com/kubernetes/cri-api/blob/master/pkg/errors/errors.go */
const named: Readonly<Record<string, string>> = {
  RegistryUnavailable: "because the registry is unavailable",
  SignatureValidationFailed: "because the signature validation failed",
};

/** Several attempts' errors as one, each text once. */
export function joinedErrorText(errors: readonly unknown[]): string {
  const texts = [...new Set(errors.map(runtimeErrorText))];
  return texts.length === 1 ? (texts[0] ?? "") : `[${texts.join(", ")}]`;
}

/** The reason and message that a container's status shows after its image could not be pulled. */
export function pullFailure(image: string, errors: readonly unknown[]): { reason: string; message: string } {
  const own = errors.length === 1 ? messageOf(errors[0]) : "";
  for (const [reason, why] of Object.entries(named)) {
    if (own.startsWith(reason))
      return { reason, message: `image pull failed for ${image} ${why}${own.slice(reason.length)}` };
  }
  return { reason: "ErrImagePull", message: joinedErrorText(errors) };
}
