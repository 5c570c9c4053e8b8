import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type Lab, startLab } from "../harness/lab.ts";
import { startMetricsServer } from "../harness/metrics-server.ts";
import { shell } from "../harness/pods.ts";

let lab: Lab;

before(async () => {
  lab = await startLab("metrics-server");
  await startMetricsServer(lab.cluster);
});
after(() => lab?.[Symbol.asyncDispose]());

/** What `kubectl top` shows, a line each, split at its blanks. */
async function top(what: readonly string[]): Promise<readonly (readonly string[])[]> {
  const said = await lab.cluster.mustKubectl(["top", ...what, "--no-headers"]);
  return said
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/));
}

/** `250m` or `40Mi`. */
const amount = (text: string | undefined): number => Number(/^(\d+)(m|Mi)$/.exec(text ?? "")?.[1] ?? Number.NaN);

test("kubectl top node shows the usage of the node", async () => {
  const { cluster } = lab;
  const [line] = await cluster.waitFor("the node's numbers", async () => top(["node"]).catch(() => undefined), 120_000);
  const [name, cpu, cpuPercent, memory, memoryPercent] = line ?? [];
  assert.equal(name, cluster.nodeName);
  assert.ok(amount(cpu) > 0, `${cpu}`);
  assert.ok(amount(memory) > 50, `${memory}`);
  assert.match(`${cpuPercent} ${memoryPercent}`, /^\d+% \d+%$/);
});

test("kubectl top pod shows the usage of each container, once it has run for a while", async () => {
  const { cluster, pods } = lab;
  await pods.create("two", {
    volumes: [{ name: "memory", emptyDir: { medium: "Memory" } }],
    containers: [
      shell("while :; do :; done", { name: "busy", resources: { limits: { cpu: "200m", memory: "50Mi" } } }),
      shell("head -c 30000000 /dev/zero >/memory/held; sleep 3600", {
        name: "full",
        volumeMounts: [{ name: "memory", mountPath: "/memory" }],
      }),
    ],
  });
  const used = await cluster.waitFor(
    "the numbers of both containers, the busy one at its limit",
    async () => {
      const lines = await top(["pod", "two", "--containers"]).catch(() => []);
      const found = new Map(lines.map(([, container = "", cpu, memory]) => [container, [amount(cpu), amount(memory)]]));
      return (found.get("busy")?.[0] ?? 0) > 150 && found.has("full") && found;
    },
    180_000,
  );
  const [busyCpu = 0] = used.get("busy") ?? [];
  const [fullCpu = 0, fullMemory = 0] = used.get("full") ?? [];
  assert.ok(busyCpu <= 220, `${busyCpu}m`);
  assert.ok(fullCpu < 50, `${fullCpu}m`);
  assert.ok(fullMemory >= 28 && fullMemory < 60, `${fullMemory}Mi`);
  await pods.remove("two");
  await cluster.waitFor("its numbers to go", async () => (await cluster.kubectl(["top", "pod", "two"])).code !== 0);
});
