import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";

/** A credential provider plugin of a test: its program, and its further fields in the configuration. */
export interface PluginDraft {
  readonly name: string;
  /** A shell script. */
  readonly script: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** The version of plugins' requests and answers. */
export const pluginVersion = "credentialprovider.kubelet.k8s.io/v1";

/** Writes plugins and their configuration into a new folder. @returns the agent's flags that name them. */
export function writePlugins(folder: string, plugins: readonly PluginDraft[]): readonly string[] {
  const programs = join(folder, "bin");
  mkdirSync(programs, { recursive: true });
  for (const { name, script } of plugins)
    writeFileSync(join(programs, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  const config = join(folder, "providers.yaml");
  const providers = plugins.map(({ name, fields }) => ({ name, apiVersion: pluginVersion, ...fields }));
  const kind = { apiVersion: "kubelet.config.k8s.io/v1", kind: "CredentialProviderConfig" };
  writeFileSync(config, stringify({ ...kind, providers }), { mode: 0o600 });
  return [`--image-credential-provider-config=${config}`, `--image-credential-provider-bin-dir=${programs}`];
}
