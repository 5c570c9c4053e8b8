import { CodedError, messageOf } from "../../../src/lib/errors.ts";
import { parseImageName } from "../../../src/pod/image-name.ts";

/** An image name as the Engine API takes it for a pull. A digest takes precedence over a tag; without a tag the daemon
 *  would pull them all.
 *  @throws CodedError invalid_argument for an invalid name. */
export function pullQuery(image: string): { readonly fromImage: string; readonly tag: string } {
  try {
    const { repository, tag, digest } = parseImageName(image);
    return { fromImage: repository, tag: digest || tag };
  } catch (error) {
    throw new CodedError("invalid_argument", messageOf(error), { cause: error });
  }
}
