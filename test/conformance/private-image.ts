import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { addImage } from "../cluster/images/build.ts";
import { upstreamPrivateImage } from "../cluster/images/catalog.ts";
import { writePlugins } from "../harness/credential-providers.ts";
import { addresses, privateRegistryHost } from "../harness/namespaces.ts";
import { privateUser, servedStore } from "../harness/registry.ts";
import { type Layout, readState } from "../harness/state.ts";

/** Names of tests that pull from a registry for which a program has the credentials. */
const asking = /ImageCredentialProvider/;

/** The audience of the tokens that the program is given, as upstream's own has it. */
export const pluginAudience = "test-audience";

/** Flags of the agent and variables of the suite that name the registry. */
export interface PrivateImage {
  readonly flags: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** Puts the private image of upstream's tests into the registry that asks for credentials, and a stand-in for the programs of a cloud into
 *  the folder; nothing where no test asks.
 *  @see https://github.com/kubernetes/kubernetes/blob/v1.36.3/test/e2e_node/remote/utils.go for the configuration */
export async function offerPrivateImage(
  layout: Layout,
  { names, folder, say }: { readonly names: readonly string[]; readonly folder: string; say(line: string): void },
): Promise<PrivateImage> {
  if (!names.some((name) => asking.test(name))) return { flags: [], env: {} };
  const password = readState(layout)?.privatePassword;
  if (password === undefined) throw new Error(`the state of ${layout.name} cannot be read: ${layout.stateFile}`);
  await addImage(upstreamPrivateImage, servedStore(layout), say);
  const registry = `${privateRegistryHost}:${addresses.privateRegistryPort}`;
  const plain = "gcp-credential-provider";
  const program = join(import.meta.dirname, "stand-ins", "credential-provider.ts");
  const script = `exec ${process.execPath} ${program}`;
  const common = { matchImages: [registry], defaultCacheDuration: "1m" };
  const login = { REGISTRY: registry, REGISTRY_USER: privateUser, REGISTRY_PASSWORD: password };
  const env = Object.entries({ ...login, PLUGIN_MODE: "serviceaccount" }).map(([name, value]) => ({ name, value }));
  const tokenAttributes = {
    serviceAccountTokenAudience: pluginAudience,
    cacheType: "Token",
    requireServiceAccount: true,
    requiredServiceAccountAnnotationKeys: ["domain.io/identity-id", "domain.io/identity-type"],
  };
  const flags = writePlugins(join(folder, "credential-providers"), [
    { name: plain, script, fields: common },
    { name: `${plain}-with-sa`, script, fields: { ...common, tokenAttributes, env } },
  ]);
  const images = join(folder, "images.yaml");
  writeFileSync(images, stringify({ privateRegistry: `${registry}/k8s-authenticated-test` }));
  return { flags, env: { KUBE_TEST_REPO_LIST: images } };
}
