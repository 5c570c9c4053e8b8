import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Lease } from "../../src/objects.ts";
import { nodeReady } from "../harness/agent.ts";
import { release } from "../harness/helm-lab.ts";
import { arrivesWhole, get, startTunnelLab, type TunnelLab } from "./helm/tunnel-lab.ts";
import { addressOf, service } from "./helm/tunnel.ts";

describe("network: tunneled, with much to carry", { timeout: 900_000 }, () => {
  let lab: TunnelLab;
  /** Pod that asks, and Service that is asked: out of the machine, and into it. */
  const ways = [
    { from: "far", to: "web" },
    { from: "web", to: "there" },
  ];
  const node = `/api/v1/nodes/${release.node}/proxy`;
  /** Resident memory of graftlet, MiB. */
  const memory = async () => {
    const metrics = await lab.cluster.mustKubectl(["get", "--raw", `${node}/metrics`]);
    return Number(/^process_resident_memory_bytes (\S+)$/m.exec(metrics)?.[1]) / 2 ** 20;
  };
  /** Looks every second until a work is done how old the node's lease is. @returns the greatest age, seconds. */
  const oldestLease = async (work: Promise<unknown>) => {
    let oldest = 0;
    const over = new AbortController();
    const done = work.finally(() => over.abort());
    while (!over.signal.aborted) {
      const text = await lab.cluster.mustKubectl(["get", "lease", release.node, "-nkube-node-lease", "-ojson"]);
      const { spec } = JSON.parse(text) as Lease;
      oldest = Math.max(oldest, (Date.now() - Date.parse(String(spec?.renewTime))) / 1_000);
      await new Promise((resolve) => setTimeout(resolve, 1_000));
    }
    await done;
    return oldest;
  };

  before(async () => {
    lab = await startTunnelLab("tunnel-load");
    await lab.cluster.apply([service("there", { selector: { app: "far" } })]);
    await lab.cluster.waitFor(
      "the Service on the machine",
      async () => (await lab.inside("web", get("http://there/hostname"))).text === "far",
      20_000,
    );
  });
  after(() => lab?.[Symbol.asyncDispose]());

  for (const { from, to } of ways) {
    test(`a thousand connections at once from ${from} to ${to}, each served`, async (t) => {
      const address = await addressOf(lab.cluster, to);
      const script = `
        fds=()
        for i in $(seq 1000); do exec {fd}<>/dev/tcp/${address}/80 || exit 1; fds+=($fd); done
        for fd in "\${fds[@]}"; do printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' >&$fd; done
        served=0
        for fd in "\${fds[@]}"; do while read -r -t 30 line <&$fd || [ -n "$line" ]; do last=$line; line=; done
          case $last in web|far) served=$((served + 1));; esac; last=; done
        echo $served`;
      const asked = lab.said(from, script);
      const began = Date.now();
      const oldest = await oldestLease(asked);
      t.diagnostic(`${(Date.now() - began) / 1_000} s; the lease was ${oldest.toFixed(1)} s old at most`);
      assert.equal(await asked, "1000");
      assert.ok(oldest < 20, `the lease was ${oldest} s old`);
    });

    test(`two hundred connections a second from ${from} to ${to}, none refused`, async (t) => {
      const address = await addressOf(lab.cluster, to);
      const script = `
        one() { exec 3<>/dev/tcp/${address}/80 && printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' >&3 &&
          while read -r line <&3 || [ -n "$line" ]; do last=$line; line=; done; exec 3>&-; case $last in web|far) ;; *) return 1;; esac; }
        for lane in 1 2 3 4 5 6 7 8; do
          ( good=0; bad=0; for i in $(seq 500); do if one; then good=$((good + 1)); else bad=$((bad + 1)); fi; done; echo $good $bad ) &
        done
        wait`;
      const began = Date.now();
      const lines = (await lab.said(from, script)).split("\n").map((line) => line.split(" ").map(Number));
      const seconds = (Date.now() - began) / 1_000;
      const sum = (at: number) => lines.reduce((total, line) => total + (line[at] ?? 0), 0);
      t.diagnostic(`${(sum(0) / seconds).toFixed(0)} a second`);
      assert.deepEqual([sum(0), sum(1)], [4_000, 0]);
    });

    test(`a gigabyte from ${from} to ${to}, whole, in bounded memory`, async (t) => {
      const before = await memory();
      const seconds = await arrivesWhole(lab, { from, to, bytes: 2 ** 30, within: 120 });
      const grown = (await memory()) - before;
      t.diagnostic(
        `${(1024 / seconds).toFixed(0)} MiB/s, graftlet ${before.toFixed(0)} MiB and ${grown.toFixed(0)} more`,
      );
      assert.ok(grown < 150, `graftlet grew by ${grown} MiB`);
    });
  }

  test("a minute without the link ends connections, and after it both ways work within five seconds", async (t) => {
    const { cluster, edge } = lab;
    await edge.unplug();
    await new Promise((resolve) => setTimeout(resolve, 60_000));
    await edge.plug();
    await nodeReady(cluster, release.node);
    const began = Date.now();
    for (const { from, to } of ways)
      await cluster.waitFor(
        `${to} to answer ${from}`,
        async () => /^(web|far)$/.test((await lab.inside(from, get(`http://${to}/hostname`))).text),
        5_000,
      );
    t.diagnostic(`${Date.now() - began} ms after the node was Ready`);
  });
});
