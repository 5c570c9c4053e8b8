import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { nodeReady } from "../harness/agent.ts";
import { detourToEdge, loseEdgePackets } from "../harness/edge-way.ts";
import { release } from "../harness/helm-lab.ts";
import { networkArgv } from "../harness/namespaces.ts";
import { must } from "../harness/processes.ts";
import { proxyByNftables } from "../harness/proxy-mode.ts";
import { addressOf, service } from "./helm/tunnel.ts";
import { arrivesWhole, get, startTunnelLab, type TunnelLab } from "./helm/tunnel-lab.ts";

/** Pod that asks, Service that is asked, and who answers: out of the machine, and into it. */
const ways = [
  { from: "far", to: "web", answer: "web" },
  { from: "web", to: "there", answer: "far" },
] as const;

describe("network: tunneled, over long ways and with another kube-proxy", { timeout: 900_000 }, () => {
  let lab: TunnelLab;
  /** Least time in which a new connection brings an answer, of ten, at no distance: by who asks. */
  const near = new Map<string, number>();

  const answers = async (from: string, to: string) => (await lab.inside(from, get(`http://${to}/hostname`))).text;
  const bothAnswer = async () => {
    await nodeReady(lab.cluster, release.node, 90_000);
    for (const { from, to, answer } of ways)
      await lab.cluster.waitFor(`${to} to answer ${from}`, async () => (await answers(from, to)) === answer, 60_000);
  };
  /** Milliseconds of a connection with one request and its answer: the least of ten. */
  const quickest = async (from: string, to: string) => {
    const url = `http://${await addressOf(lab.cluster, to)}/hostname`;
    const ask = `${get(url)} --output /dev/null --write-out '%{time_total}\\n'`;
    const times = (await lab.said(from, `for i in $(seq 10); do ${ask}; done`)).split("\n").map(Number);
    return Math.min(...times) * 1_000;
  };
  const names = async () => {
    const web = await addressOf(lab.cluster, "web");
    assert.equal(await lab.said("far", "dig +search +short web"), web);
    assert.equal(await lab.said("far", "dig +search +short +tcp web.default"), web);
  };
  const fifty = async (from: string, to: string, answer: string) => {
    const ask = `${get(`http://${to}/hostname`, 60)} --connect-timeout 30`;
    const all = `seq 50 | xargs -P 50 -I{} sh -c 'echo $(${ask})' | sort | uniq -c | xargs`;
    assert.equal(await lab.said(from, all), `50 ${answer}`);
  };

  before(async () => {
    lab = await startTunnelLab("tunnel-variants");
    await lab.cluster.apply([service("there", { selector: { app: "far" } })]);
    await bothAnswer();
  });
  after(() => lab?.[Symbol.asyncDispose]());

  for (const { roundTripMs, lost } of [
    { roundTripMs: 0, lost: 0 },
    { roundTripMs: 20, lost: 0 },
    { roundTripMs: 100, lost: 0 },
    { roundTripMs: 20, lost: 1 },
  ])
    test(`${roundTripMs} ms there and back, ${lost}% of the packets lost: names, connections and bytes both ways`, async (t) => {
      await using _way = await detourToEdge(lab, roundTripMs);
      await using loss = lost > 0 ? await loseEdgePackets(lab, lost) : undefined;
      await bothAnswer();
      await names();
      for (const { from, to, answer } of ways) {
        const took = await quickest(from, to);
        const before = near.get(from) ?? took;
        near.set(from, before);
        await fifty(from, to, answer);
        const seconds = await arrivesWhole(lab, { from, to, bytes: 20 * 2 ** 20, within: 60 });
        t.diagnostic(`from ${from} to ${to}: ${took.toFixed(0)} ms a connection, 20 MiB in ${seconds.toFixed(1)} s`);
        assert.ok(took >= roundTripMs, "it went another way");
        // As much as without a link, where a connection and a request take a round trip each.
        assert.ok(took - before < 2.5 * roundTripMs + 20, `${took} ms, and ${before} ms at no distance`);
      }
      if (loss) assert.ok((await loss.mend()) > 10);
    });

  test("kube-proxy by nftables: Services on the machine answer pods and processes of the cluster's nodes", async () => {
    const { cluster } = lab;
    await bothAnswer();
    await proxyByNftables(cluster);
    await cluster.apply([service("late", { selector: { part: "both" } })]);
    await cluster.mustKubectl(["label", "pod", "web", "far", "part=both"]);
    await bothAnswer();
    const twenty = `for i in $(seq 20); do ${get("http://late/hostname")}; echo; done | sort -u | xargs`;
    await cluster.waitFor("both to answer", async () => (await lab.said("web", twenty)) === "far web", 20_000);
    const there = await addressOf(cluster, "there");
    const ask = ["curl", "--silent", "--max-time", "10", `http://${there}/hostname`];
    assert.equal(await must(networkArgv(cluster.layout, ask)), "far");
    await fifty("web", "there", "far");
    await fifty("far", "web", "web");
    await cluster.mustKubectl(["label", "pod", "far", "part-"]);
    await cluster.waitFor("one to be left", async () => (await lab.said("web", twenty)) === "web", 20_000);
  });
});
