import type { ProviderFactory } from "../src/seams/provider.ts";

/** Provider factories by the names in `--provider` and GraftletConfiguration, for the nodes of one process. A provider's code is loaded on
 *  first use, to save memory. */
export function createProviders(): Readonly<Record<string, ProviderFactory>> {
  let ssh: Promise<ProviderFactory> | undefined;
  return {
    cri: async (options) => (await import("./cri/provider.ts")).criProvider(options),
    docker: async (options) => (await import("./docker/provider.ts")).dockerProvider(options),
    ssh: async (options) => (await (ssh ??= loadSsh()))(options),
  };
}

async function loadSsh(): Promise<ProviderFactory> {
  const [{ sshProvider }, { createReverseListeners }] = await Promise.all([
    import("./ssh/provider.ts"),
    import("./ssh/reverse/listeners.ts"),
  ]);
  return sshProvider(createReverseListeners());
}
