import assert from "node:assert/strict";
import { nodeReady } from "../../harness/agent.ts";
import { release } from "../../harness/helm-lab.ts";
import { addressOf, service } from "./tunnel.ts";
import { arrivesWhole, get, type TunnelLab } from "./tunnel-lab.ts";

/** Pod that asks, Service that is asked, and who answers: out of the machine, and into it. */
const ways = [
  { from: "far", to: "web", answer: "web" },
  { from: "web", to: "there", answer: "far" },
] as const;

/** Ways that are tried: milliseconds there and back, and packets of a hundred that are lost each way. */
export const distances = [
  { roundTripMs: 0, lost: 0 },
  { roundTripMs: 20, lost: 0 },
  { roundTripMs: 100, lost: 0 },
  { roundTripMs: 20, lost: 1 },
] as const;

/** A way between a lab's cluster and its machine, and the bytes that are sent there. */
export interface Way {
  /** Milliseconds that bytes and their answer take on it at least. */
  readonly roundTripMs: number;
  /** Bytes of the upload that has to arrive whole. */
  readonly bytes: number;
  /** Seconds that it may take. */
  readonly within: number;
}

/** Both ways over a lab's link. */
export interface BothWays {
  /** Waits until the node is Ready, and a Service answers at the end of each. */
  answer(): Promise<void>;
  /** Fifty connections at once from a pod to a Service, which all have this answer. */
  fifty(from: string, to: string, answer: string): Promise<void>;
  /** Names, connections and bytes, in both directions. A connection takes as long as without a link: what it takes at no distance, which is
   *  what the first call of this finds, and two round trips. @returns a line for each direction that says what was measured. */
  tried(way: Way): Promise<readonly string[]>;
}

/** Makes the Service that leads to the machine. */
export async function bothWays(lab: TunnelLab): Promise<BothWays> {
  const { cluster } = lab;
  /** Least time of a connection at no distance: by who asks. */
  const near = new Map<string, number>();
  const answers = async (from: string, to: string) => (await lab.inside(from, get(`http://${to}/hostname`))).text;
  /** Milliseconds of a connection with one request and its answer: the least of ten. */
  const quickest = async (from: string, to: string) => {
    const url = `http://${await addressOf(cluster, to)}/hostname`;
    const ask = `${get(url)} --output /dev/null --write-out '%{time_total}\\n'`;
    const times = (await lab.said(from, `for i in $(seq 10); do ${ask}; done`)).split("\n").map(Number);
    return Math.min(...times) * 1_000;
  };
  const names = async () => {
    const web = await addressOf(cluster, "web");
    assert.equal(await lab.said("far", "dig +search +short web"), web);
    assert.equal(await lab.said("far", "dig +search +short +tcp web.default"), web);
  };
  await cluster.apply([service("there", { selector: { app: "far" } })]);
  const both: BothWays = {
    async answer() {
      await nodeReady(cluster, release.node, 90_000);
      for (const { from, to, answer } of ways)
        await cluster.waitFor(`${to} to answer ${from}`, async () => (await answers(from, to)) === answer, 60_000);
    },
    async fifty(from, to, answer) {
      const ask = `${get(`http://${to}/hostname`, 60)} --connect-timeout 30`;
      const all = `seq 50 | xargs -P 50 -I{} sh -c 'echo $(${ask})' | sort | uniq -c | xargs`;
      assert.equal(await lab.said(from, all), `50 ${answer}`);
    },
    async tried({ roundTripMs, bytes, within }) {
      await both.answer();
      await names();
      const measured = [];
      for (const { from, to, answer } of ways) {
        const took = await quickest(from, to);
        const before = near.get(from) ?? took;
        near.set(from, before);
        await both.fifty(from, to, answer);
        const seconds = await arrivesWhole(lab, { from, to, bytes, within });
        measured.push(
          `from ${from} to ${to}: ${took.toFixed(0)} ms a connection, ${bytes / 2 ** 20} MiB in ${seconds.toFixed(1)} s`,
        );
        assert.ok(took >= roundTripMs, "it went another way");
        // As much as without a link, where a connection and a request take a round trip each.
        assert.ok(took - before < 2.5 * roundTripMs + 20, `${took} ms, and ${before} ms at no distance`);
      }
      return measured;
    },
  };
  return both;
}
