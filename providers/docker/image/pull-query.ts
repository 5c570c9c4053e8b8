import { CodedError, messageOf } from "../../../src/lib/errors.ts";
import { parseImageName } from "../../../src/pod/image-name.ts";

/** Returns the query of a pull request for an image name. A digest takes precedence over a tag; without a tag the daemon would
 *  pull all tags.
 *  @throws CodedError invalid_argument for an invalid name. */
export function pullQuery(image: string): { readonly fromImage: string; readonly tag: string } {
  try {
    const { repository, tag, digest } = parseImageName(image);
    return { fromImage: repository, tag: digest || tag };
  } catch (error) {
    throw new CodedError("invalid_argument", messageOf(error), { cause: error });
  }
}
