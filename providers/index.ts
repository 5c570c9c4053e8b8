import type { ProviderFactory } from "../src/seams/provider.ts";

/** Providers by their names in `--provider` and GraftletConfiguration. A provider's code is loaded on first use, to save
 *  memory. */
export const providers: Readonly<Record<string, ProviderFactory>> = {
  cri: async (options) => (await import("./cri/provider.ts")).criProvider(options),
  docker: async (options) => (await import("./docker/provider.ts")).dockerProvider(options),
  ssh: async (options) => (await import("./ssh/provider.ts")).sshProvider(options),
};
