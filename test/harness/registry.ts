import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import { addresses } from "./namespaces.ts";
import { must } from "./processes.ts";
import { type Layout, ownsKernel } from "./state.ts";
import type { Tools } from "./tools.ts";

/** The user that the registry with credentials knows. */
export const privateUser = "puller";

/**
 * Writes the configurations of the registries: one open, on two ports, one that asks for credentials, both
 * reading the images of `store` and writing nothing.
 * @see https://distribution.github.io/distribution/about/configuration/
 */
export async function writeRegistryConfigs(layout: Layout, store: string, password: string): Promise<void> {
  mkdirSync(layout.registry);
  const passwords = join(layout.registry, "htpasswd");
  // bcrypt is the only hash that the registry takes; perl's crypt is the machine's libxcrypt.
  const hash = await must(
    [
      "perl",
      "-e",
      'chomp(my $p = <STDIN>); print crypt($p, q($2b$05$) . join "", map { ("a".."z")[rand 26] } 1..21, "u")',
    ],
    { stdin: password },
  );
  writeFileSync(passwords, `${privateUser}:${hash}\n`, { mode: 0o600 });
  const config = (port: number): object => ({
    version: 0.1,
    log: { level: "warn" },
    storage: { filesystem: { rootdirectory: store }, maintenance: { readonly: { enabled: true } } },
    http: { addr: `${registryAddress(layout)}:${port}` },
  });
  writeFileSync(join(layout.registry, "open.yaml"), stringify(config(addresses.registryPort)));
  writeFileSync(join(layout.registry, "plain.yaml"), stringify(config(addresses.plainRegistryPort)));
  const auth = { htpasswd: { realm: "graftlet test", path: passwords } };
  writeFileSync(join(layout.registry, "private.yaml"), stringify({ ...config(addresses.privateRegistryPort), auth }));
}

/** Where the target reaches them: itself, unless it has a kernel of its own. */
export function registryAddress(layout: Layout): string {
  return ownsKernel(layout) ? addresses.node : "127.0.0.1";
}

/** The folder of images that the registries of a cluster serve. */
export function servedStore(layout: Pick<Layout, "registry">): string {
  const { storage } = parse(readFileSync(join(layout.registry, "open.yaml"), "utf8")) as {
    storage: { filesystem: { rootdirectory: string } };
  };
  return storage.filesystem.rootdirectory;
}

/** One of the registries; `plain` is the open one on the port of http. */
export type RegistryName = "open" | "plain" | "private";

/** The command line of one of the registries. */
export function registryArgv(tools: Tools, layout: Layout, which: RegistryName): string[] {
  return [tools.path("docker-registry"), "serve", join(layout.registry, `${which}.yaml`)];
}
