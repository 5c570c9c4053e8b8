import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import type { Cluster } from "./cluster.ts";
import type { Kubectl } from "./kubectl.ts";

/** A service account, and the Pod that its token is bound to; to none where that is missing. */
export interface TokenHolder {
  readonly namespace: string;
  readonly account: string;
  readonly pod?: string;
}

/** kubectl with a token that the API server has just issued, and nothing else to log in with. */
export async function kubectlWithToken(
  cluster: Cluster,
  { namespace, account, pod }: TokenHolder,
): Promise<Kubectl["kubectl"]> {
  const bound = pod === undefined ? [] : ["--bound-object-kind=Pod", `--bound-object-name=${pod}`];
  const args = ["create", "token", account, `--namespace=${namespace}`, "--duration=1h", ...bound];
  const token = (await cluster.mustKubectl(args)).trim();
  const config = parse(readFileSync(cluster.adminKubeconfig, "utf8")) as { users: { user: object }[] };
  const file = join(cluster.layout.dir, `${namespace}-${account}-${pod ?? "nobody"}.kubeconfig`);
  const users = config.users.map((one) => ({ ...one, user: { token } }));
  writeFileSync(file, stringify({ ...config, users }), { mode: 0o600 });
  return (given, options) => cluster.kubectl([`--kubeconfig=${file}`, ...given], options);
}
