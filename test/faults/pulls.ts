import { type Fault, integration, unit } from "./fault.ts";

/** Mistakes in how images are pulled. */
export const pulls: readonly Fault[] = [
  {
    name: "pull-always",
    file: "src/runtime/images/puller.ts",
    text: 'policy === "Always" ? undefined : (request.seen',
    becomes: 'policy === "always" ? undefined : (request.seen',
    breaks: "With imagePullPolicy Always a container runs the image that is on the machine, however old.",
    assertion: '"is pulled though it is there under Always": Expected values to be strictly deep-equal',
    foundBy: [unit("runtime/images-puller")],
  },
  {
    name: "pulled-for-all",
    file: "src/runtime/images/pull-manager.ts",
    text: "if (credentials?.nodePodsAccessible) return",
    becomes: "if (credentials) return",
    breaks: "An image that was pulled with one pod's secret is there for every pod of the node.",
    assertion: "without a secret",
    foundBy: [unit("runtime/images-access")],
  },
  {
    name: "account-for-all",
    file: "src/runtime/images/pull-credentials.ts",
    text: "if (source?.account) return { kubernetesServiceAccounts: [source.account] };\n",
    becomes: "\n",
    breaks:
      "An image that a plugin had the credentials for in a service account's name is there for every pod of the node.",
    assertion: "is granted to pods of the service account that a plugin had credentials for",
    foundBy: [unit("runtime/images-access")],
  },
  {
    name: "pull-backs-off-late",
    file: "src/sync/passes.ts",
    text: "outcome.error && hasCreated(outcome) ? relistMs",
    becomes: "outcome.error && hasCreated(outcome) ? maxWaitMs",
    breaks: "A pull that failed is made a second time before its pod is seen to wait.",
    assertion: "something failed after something was made",
    foundBy: [unit("sync/passes")],
  },
  {
    name: "pull-secret",
    file: "providers/cri/images.ts",
    text: "imageService.pullImage, request, signal",
    becomes: "imageService.pullImage, { ...request, auth: undefined }, signal",
    breaks: "No image comes from a registry that asks for credentials.",
    assertion:
      '"pulls with imagePullSecrets, and logs none of them": waited 60 s in vain for right-secret: to be Ready',
    foundBy: [integration("images", "pulls with imagePullSecrets")],
  },
];
