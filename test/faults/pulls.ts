import { type Fault, integration, unit } from "./fault.ts";
import { argument, become, condition, never } from "./mistake.ts";

/** Mistakes in how images are pulled. */
export const pulls: readonly Fault[] = [
  {
    name: "pull-always",
    in: "findOrPull",
    mistake: never(condition("Always", 1)),
    breaks: "With imagePullPolicy Always, a container runs the image that is present on the machine, even an old one.",
    assertion: '"pulls a present image again with policy Always": Expected values to be strictly deep-equal',
    foundBy: [unit("runtime/images-puller")],
  },
  {
    name: "pulled-for-all",
    in: "createPullManager",
    mistake: become(condition("nodePodsAccessible"), "credentials"),
    breaks: "Every pod of the node can use an image that was pulled with one pod's secret.",
    assertion: "without a secret",
    foundBy: [unit("runtime/images-access")],
  },
  {
    name: "account-for-all",
    in: "toPullCredentials",
    mistake: never(condition("account")),
    breaks:
      "Every pod of the node can use an image that was pulled with a plugin's credentials for one service account.",
    assertion: "is granted to pods of the service account that a plugin had credentials for",
    foundBy: [unit("runtime/images-access")],
  },
  {
    name: "pull-backs-off-late",
    in: "createPasses",
    mistake: never(condition("hasCreated")),
    breaks: "A failed pull is repeated before its pod is shown as waiting.",
    assertion: "after a second, like a relist, if the pass fails after creating something",
    foundBy: [unit("sync/passes")],
  },
  {
    name: "pull-secret",
    in: "criImages.pullImage",
    mistake: become(argument("call", 2), "{ ...$, auth: undefined }"),
    breaks: "No image can be pulled from a registry that requires credentials.",
    assertion:
      '"pulls with imagePullSecrets, and logs none of them": waited 60 s in vain for right-secret: to be Ready',
    foundBy: [integration("images", "pulls with imagePullSecrets")],
  },
];
