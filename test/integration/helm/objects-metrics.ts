import assert from "node:assert/strict";
import type { Service } from "../../../src/objects.ts";
import type { Cluster } from "../../harness/cluster.ts";
import { release } from "../../harness/helm-lab.ts";
import { networkArgv } from "../../harness/namespaces.ts";
import { run } from "../../harness/processes.ts";

export const metricsPort = 10_249;

/** Reads the metrics of the release's GraftedNodes as an account that may get `nodes/metrics`, and checks that they include these lines. A
 *  caller without this permission, or without a token, may not read them. */
export async function checkMetrics(cluster: Cluster, lines: readonly string[]): Promise<void> {
  const service = await cluster.get<Service>("service", `${release.name}-graftlet-metrics`, release.namespace);
  const url = `https://${service?.spec?.clusterIP}:${metricsPort}/metrics/objects`;
  const read = async (...headers: readonly string[]) => {
    const argv = ["curl", "--silent", "--insecure", "--write-out", "%{http_code}", ...headers, url];
    const { stdout } = await run(networkArgv(cluster.layout, argv));
    return { status: stdout.slice(-3), text: stdout.slice(0, -3) };
  };
  const readAs = async (account: string) => {
    const token = (await cluster.mustKubectl(["create", "token", account])).trim();
    return await read("--header", `Authorization: Bearer ${token}`);
  };
  for (const account of ["guest", "scraper"]) await cluster.mustKubectl(["create", "serviceaccount", account]);
  await cluster.mustKubectl(["create", "clusterrole", "scraper", "--verb=get", "--resource=nodes/metrics"]);
  const granted = ["--clusterrole=scraper", "--serviceaccount=default:scraper"];
  await cluster.mustKubectl(["create", "clusterrolebinding", "scraper", ...granted]);
  assert.equal((await read()).status, "401");
  assert.equal((await readAs("guest")).status, "403");
  const { status, text } = await readAs("scraper");
  assert.equal(status, "200", text);
  for (const line of lines) assert.ok(text.includes(`${line}\n`), `${line} is not in:\n${text}`);
}
