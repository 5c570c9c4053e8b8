import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { type Contender, graftlet, kubelet } from "../bench/contenders.ts";
import { documentedRatios, ratioKey } from "../bench/documented.ts";
import { criFigures } from "../bench/figures-cri.ts";
import { createLedger, medians } from "../bench/ledger.ts";
import { clear, idlePod, live, numbered } from "../bench/moments.ts";
import { burst } from "../bench/scenarios/burst.ts";
import { deletion } from "../bench/scenarios/delete.ts";
import { startsOf } from "../bench/scenarios/start.ts";
import type { BenchLab } from "../bench/bench-lab.ts";
import { startGraftlet } from "../harness/agent.ts";
import { startCluster } from "../harness/cluster.ts";
import { openPods } from "../harness/pods.ts";

/** How much worse a ratio may be than the documented one: what else the machine does weighs on both, though not equally. */
const tolerance = 1.25;
const tries = 3;
const page = readFileSync(join(import.meta.dirname, "../../docs/performance.md"), "utf8");
const documented = documentedRatios(page, "bench cri");

/** The file that this run of tests has built, or the source. */
const ours: Contender = { ...graftlet, start: (cluster, options) => startGraftlet(cluster, options) };

async function turn(lab: BenchLab, { who, start }: Contender, round: number): Promise<void> {
  await using agent = await start(lab.cluster);
  const warm = numbered(`warm-${who}-${round}`, 2);
  for (const name of warm) await live(lab.pods, name, idlePod(lab.cluster.nodeName));
  await clear(lab.pods, warm);
  await startsOf(lab, { who, round });
  for (const scenario of [burst, deletion]) await scenario(lab, { who, round, agent });
  await agent.stop();
}

test("no documented ratio to the kubelet is worse by more than a quarter", { timeout: 600_000 }, async () => {
  await using cluster = await startCluster({ name: "guard", nodeName: "guard", provider: "cri" });
  await using pods = await openPods(cluster);
  const open = new Map<string, string>();
  for (let round = 1; round <= tries; round += 1) {
    const ledger = createLedger();
    const lab: BenchLab = { cluster, pods, ledger, say: () => undefined };
    for (const contender of [kubelet, ours]) await turn(lab, contender, round);
    let compared = 0;
    for (const { id, title, reach } of criFigures) {
      const limit = (documented.get(ratioKey(title, kubelet.who)) ?? Number.NaN) * tolerance;
      const ratio = reach.find(({ text }) => text.endsWith(`× ${kubelet.who}`))?.of(medians(ledger, id));
      if (ratio === undefined || Number.isNaN(limit)) continue;
      compared += 1;
      console.log(`${title}: ${ratio.toFixed(2)} × kubelet, at most ${limit.toFixed(2)}`);
      if (ratio <= limit) open.delete(title);
      else if (round === 1 || open.has(title))
        open.set(title, `${title}: ${ratio.toFixed(2)}, more than ${limit.toFixed(2)}`);
    }
    assert.ok(compared >= 6, "the page documents the figures");
    if (open.size === 0) return;
  }
  assert.fail([...open.values()].join("\n"));
});
