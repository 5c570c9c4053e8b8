import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import type { Cluster } from "../../harness/cluster.ts";
import { shell } from "../../harness/pods.ts";
import type { Scenario } from "../bench-lab.ts";
import { moment, standing } from "../moments.ts";
import { execTarget } from "./exec.ts";

/** How much is carried, MiB. */
const size = 1024;
const talker = "talker";
const line = "x".repeat(127);

/** A GiB through `kubectl exec` and through `kubectl logs`, to nowhere. */
export const streams: Scenario = async ({ cluster, pods, ledger }, { who, round }) => {
  await standing(pods, execTarget, { nodeName: cluster.nodeName });
  ledger.note("exec rate", who, round, await execRate(cluster, size));
  await standing(pods, talker, {
    nodeName: cluster.nodeName,
    restartPolicy: "Never",
    containers: [shell(`yes ${line} | head -c ${size * 2 ** 20}`)],
  });
  await moment(pods, talker, "to have spoken", ({ status }) => status?.phase === "Succeeded", 600_000);
  ledger.note("log rate", who, round, await rateOf(cluster, ["logs", talker], size));
};

/** MiB a second through `kubectl exec`. */
export function execRate(cluster: Cluster, mebibytes: number): Promise<number> {
  const copy = ["dd", "if=/dev/zero", "bs=1M", `count=${mebibytes}`, "status=none"];
  return rateOf(cluster, ["exec", execTarget, "--", ...copy], mebibytes);
}

/** MiB a second that a command of kubectl writes. @throws when it fails. */
async function rateOf(cluster: Cluster, args: readonly string[], mebibytes: number): Promise<number> {
  const nowhere = openSync("/dev/null", "w");
  const began = performance.now();
  const child = cluster.startKubectl(args, { stdio: ["ignore", nowhere, "inherit"] });
  closeSync(nowhere);
  const [code] = (await once(child, "exit")) as [number | null];
  if (code !== 0) throw new Error(`kubectl ${args.join(" ")} failed with ${code}`);
  return mebibytes / ((performance.now() - began) / 1000);
}
