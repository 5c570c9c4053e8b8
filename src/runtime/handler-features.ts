import type { RuntimeHandler } from "../gen/cri.ts";
import type { RuntimeClasses } from "./ports.ts";
import type { PrepareDeps } from "./configure-container.ts";

/** Creates the lookup of the features of a pod's runtime handler.
 *  @param handlers the runtime's handlers; undefined if it does not report them. */
export function createHandlerFeatures(
  runtimeClasses: RuntimeClasses,
  handlers: () => readonly RuntimeHandler[] | undefined,
): PrepareDeps["handlerFeatures"] {
  return async ({ spec: { runtimeClassName } }, signal) => {
    // The default handler has an empty name.
    const handler = runtimeClassName ? await runtimeClasses.handler(runtimeClassName, signal) : "";
    return handlers()?.find(({ name }) => name === handler)?.features;
  };
}
