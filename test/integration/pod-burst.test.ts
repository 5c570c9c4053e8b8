import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import type { Node } from "../../src/objects.ts";
import { startGraftlet } from "../harness/agent.ts";
import { startCluster } from "../harness/cluster.ts";
import { type SentSpan, startCollector } from "../harness/otlp.ts";
import { openPods } from "../harness/pods.ts";

/** How long the creation of a sandbox counts, nanoseconds. */
const counted = 2_000_000_000n;

test("of many pods at once, two sandboxes for each processor are created concurrently", {
  timeout: 300_000,
}, async () => {
  await using cluster = await startCluster({ name: "pod-burst" });
  await using pods = await openPods(cluster);
  await using collector = await startCollector(`unix://${join(cluster.layout.dir, "collector.sock")}`);
  const tracing = { endpoint: collector.endpoint, samplingRatePerMillion: 1_000_000 };
  await using agent = await startGraftlet(cluster, { config: { tracing } });
  const node = await cluster.get<Node>("node", cluster.nodeName);
  const processors = Number(node?.status?.capacity?.["cpu"]);
  const names = Array.from({ length: 6 * processors }, (_, index) => `one-${index}`);
  await Promise.all(names.map((name) => pods.create(name, { containers: [{}] })));
  await Promise.all(names.map((name) => pods.ready(name)));
  const sandboxes = await cluster.waitFor("the spans of all sandboxes", async () => {
    const spans = collector.spans.filter(({ name }) => name.endsWith("/RunPodSandbox"));
    return spans.length === names.length && spans;
  });
  assert.equal(mostAtOnce(sandboxes), 2 * processors);
  assert.equal(await agent.stop(), true);
});

/** The most of these spans that were in progress, and counted, at the same time. A span ends a moment after its call, with which the next
 *  begins. */
function mostAtOnce(spans: readonly SentSpan[]): number {
  const moment = 20_000_000n;
  const over = ({ start, end }: SentSpan) => (end - start > counted ? start + counted : end) - moment;
  return Math.max(...spans.map(({ start: at }) => spans.filter((one) => one.start <= at && at < over(one)).length));
}
