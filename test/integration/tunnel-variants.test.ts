import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { detourToEdge, loseEdgePackets } from "../harness/edge-way.ts";
import { agentAddresses } from "../harness/agent-machine.ts";
import { nodeReady } from "../harness/agent.ts";
import { release } from "../harness/helm-lab.ts";
import { installUfw } from "../harness/ufw.ts";
import { networkArgv } from "../harness/namespaces.ts";
import { must } from "../harness/processes.ts";
import { proxyByNftables } from "../harness/proxy-mode.ts";
import { podOf, runOnFurtherNodes } from "./helm/further-nodes.ts";
import { addressOf, service, tunneled } from "./helm/tunnel.ts";
import { firewallMessage, get, startTunnelLab, type TunnelLab } from "./helm/tunnel-lab.ts";
import { type BothWays, bothWays, distances } from "./helm/tunnel-ways.ts";

describe("network: tunneled over long distances, and with another kube-proxy", { timeout: 900_000 }, () => {
  let lab: TunnelLab;
  let ways: BothWays;

  before(async () => {
    lab = await startTunnelLab("tunnel-variants");
    ways = await bothWays(lab);
    await ways.answer();
  });
  after(() => lab?.[Symbol.asyncDispose]());

  for (const { roundTripMs, lost } of distances)
    test(`names, connections and bytes in both directions work at ${roundTripMs} ms round trip and ${lost}% packet loss`, async (t) => {
      await using _way = await detourToEdge(lab, roundTripMs);
      await using loss = lost > 0 ? await loseEdgePackets(lab, lost) : undefined;
      for (const line of await ways.tried({ roundTripMs, bytes: 20 * 2 ** 20, within: 60 })) t.diagnostic(line);
      if (loss) assert.ok((await loss.mend()) > 10);
    });

  test("pods of two tunneled nodes reach Services whose pods are on the other node", async () => {
    const { cluster } = lab;
    const second = "edge-second";
    await runOnFurtherNodes(lab, [second], tunneled, "tunneled");
    const [one, other] = [podOf(release.node), podOf(second)];
    await cluster.apply([one, other].map((name) => service(name, { selector: { app: name } })));
    for (const [from, to] of [
      [one, other],
      [other, one],
    ] as const) {
      const ask = get(`http://${to}/hostname`);
      await cluster.waitFor(`${to} to answer`, async () => (await lab.inside(from, ask)).text === to, 30_000);
    }
  });

  test("with kube-proxy in nftables mode, Services on the machine answer pods and processes on the cluster's nodes", async () => {
    const { cluster } = lab;
    await ways.answer();
    await proxyByNftables(cluster);
    await cluster.apply([service("late", { selector: { part: "both" } })]);
    await cluster.mustKubectl(["label", "pod", "web", "far", "part=both"]);
    await ways.answer();
    const twenty = `for i in $(seq 20); do ${get("http://late/hostname")}; echo; done | sort -u | xargs`;
    await cluster.waitFor("both to answer", async () => (await lab.said("web", twenty)) === "far web", 20_000);
    const there = await addressOf(cluster, "there");
    const ask = ["curl", "--silent", "--max-time", "10", `http://${there}/hostname`];
    assert.equal(await must(networkArgv(cluster.layout, ask)), "far");
    await ways.fifty("web", "there", "far");
    await ways.fifty("far", "web", "web");
    // From the machine to itself: graftlet is then an endpoint of its own connection.
    await ways.fifty("far", "there", "far");
    await cluster.mustKubectl(["label", "pod", "far", "part-"]);
    await cluster.waitFor("one to be left", async () => (await lab.said("web", twenty)) === "web", 20_000);
  });

  test("ufw on the machine blocks pods, and the condition has the command that lets them in", async () => {
    const { edge, cluster } = lab;
    await installUfw(edge, (line) => console.error(line));
    await edge.mustInside(["sh", "-ec", `ufw allow ${agentAddresses.sshPort}/tcp; ufw --force enable`]);
    assert.notEqual((await lab.inside("far", get("http://web/hostname", 3))).code, 0);
    // graftlet looks every five minutes, and when the tunnel is new.
    await edge.unplug();
    await new Promise((resolve) => setTimeout(resolve, 12_000));
    await edge.plug();
    await nodeReady(cluster, release.node);
    const message = await firewallMessage(lab, "the condition to report it", (text) => text !== undefined);
    const [, command = ""] =
      /^ufw on the target blocks TCP and UDP from pods .* run: (ufw .+)$/.exec(message ?? "") ?? [];
    await edge.mustInside(["sh", "-ec", command]);
    await firewallMessage(lab, "the condition to be gone", (text) => text === undefined);
    assert.equal(await lab.said("far", get("http://web/hostname")), "web");
  });
});
