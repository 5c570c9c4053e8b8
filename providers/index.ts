import type { ProviderFactory } from "../src/seams/provider.ts";

/** Every provider that comes with graftlet, by the name that `--provider` and GraftletConfiguration take. A provider's code is
 *  loaded when a node asks for it: nobody pays for the libraries of another. */
export const providers: Readonly<Record<string, ProviderFactory>> = {
  cri: async (options) => (await import("./cri/provider.ts")).criProvider(options),
  docker: async (options) => (await import("./docker/provider.ts")).dockerProvider(options),
  ssh: async (options) => (await import("./ssh/provider.ts")).sshProvider(options),
};
