import { join, relative } from "node:path";
import type { Screen } from "./screen.ts";
import { namespace } from "./tour.ts";

const manifest = join(import.meta.dirname, "through-link.yaml");

/** Shows what a tunneled node's pods have of the cluster, and the cluster of them, after the tour. Throws when something is not as it
 *  should be. */
export async function throughLink(screen: Screen): Promise<void> {
  const kubectl = (...args: string[]) => screen.show("kubectl", ["--namespace", namespace, ...args]);
  screen.heading(
    "over the link: a database in the cluster, and a Deployment on the machine that writes to it by its name",
  );
  await screen.show("kubectl", ["apply", "-f", relative(process.cwd(), manifest)]);
  await kubectl("rollout", "status", "deployment/stock", "--timeout=120s");
  await kubectl("rollout", "status", "deployment/press", "--timeout=120s");
  await kubectl("get", "pods", "-o", "wide");
  const psql = "/usr/lib/postgresql/15/bin/psql";
  const rows = await kubectl(
    "exec",
    "deployment/press",
    "--",
    psql,
    "-h",
    "stock",
    "-U",
    "postgres",
    "-c",
    "select by, count(*) from pieces group by by",
  );
  if (!/press-\S+ +\| +[1-9]/.test(rows.output)) throw new Error("the demo expected rows of the pod on the machine");
  screen.heading("and back: a pod of the cluster asks a Service whose pods are on the machine");
  const ask = "exec 3<>/dev/tcp/web/80; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; timeout 10 cat <&3";
  const page = await kubectl("exec", "deployment/stock", "--", "bash", "-c", ask);
  if (!page.output.includes("graftlet runs")) throw new Error("the demo expected the page from the machine");
}
