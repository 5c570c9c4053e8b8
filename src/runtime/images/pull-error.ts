import { RuntimeError, type RuntimeReason } from "../../seams/runtime.ts";
import { runtimeErrorText } from "../../pod/error-text.ts";

/** Texts of the pull errors that CRI names. */
const named: Readonly<Partial<Record<RuntimeReason, string>>> = {
  RegistryUnavailable: "because the registry is unavailable",
  SignatureValidationFailed: "because the signature validation failed",
};

/** Joins the errors of several attempts, each text once. */
export function joinedErrorText(errors: readonly unknown[]): string {
  const texts = [...new Set(errors.map(runtimeErrorText))];
  return texts.length === 1 ? (texts[0] ?? "") : `[${texts.join(", ")}]`;
}

/** The reason and message that a container's status shows after its image could not be pulled. */
export function pullFailure(image: string, errors: readonly unknown[]): { reason: string; message: string } {
  const [error, ...more] = errors;
  if (error instanceof RuntimeError && more.length === 0) {
    const { reason, message } = error;
    const why = named[reason];
    if (why !== undefined)
      return { reason, message: `image pull failed for ${image} ${why}${message.slice(reason.length)}` };
  }
  return { reason: "ErrImagePull", message: joinedErrorText(errors) };
}
