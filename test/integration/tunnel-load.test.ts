import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { parseNetDev } from "../../src/host/net-dev.ts";
import type { EndpointSlice, Lease } from "../../src/objects.ts";
import { nodeReady } from "../harness/agent.ts";
import { release } from "../harness/helm-lab.ts";
import { networkArgv } from "../harness/namespaces.ts";
import { must } from "../harness/processes.ts";
import { loginKeyFile } from "../harness/sshd.ts";
import { releaseOf } from "./helm/release.ts";
import { arrivesWhole, get, startTunnelLab, type TunnelLab } from "./helm/tunnel-lab.ts";
import { addressOf, server, service } from "./helm/tunnel.ts";
import { placed } from "./helm/workload.ts";
import { whole } from "../matrix.ts";

/** Connections that are made at least, however long that takes on a busy machine: a quiet one makes over 200 a second, which the contract
 *  of the pods' way holds. */
const leastConnections = whole ? 4_000 : 2_000;
/** Time in which connections are opened and closed in each direction, seconds. */
const loadSeconds = whole ? 60 : 20;
/** Size of a transfer, MiB: more than graftlet may grow by meanwhile. */
const transferMiB = whole ? 1_024 : 256;
/** Time over which is counted what a node at rest takes, seconds. */
const restSeconds = 10;
/** Part of a cat's throughput at which a file arrives at least. It is read, sent as a form and written on the two cores that do all else. */
const leastOfCat = 0.1;

describe("network: tunneled under load", { timeout: 900_000 }, () => {
  let lab: TunnelLab;
  /** Pod that asks, and Service that is asked: out of the machine, and into it. Bytes go down the link, and up. */
  const ways = [
    { from: "far", to: "web", over: "down" },
    { from: "web", to: "there", over: "up" },
  ];
  const node = `/api/v1/nodes/${release.node}/proxy`;
  const metric = async (name: string) => {
    const metrics = await lab.cluster.mustKubectl(["get", "--raw", `${node}/metrics`]);
    return Number(new RegExp(`^${name} (\\S+)$`, "m").exec(metrics)?.[1]);
  };
  /** Resident memory of graftlet, MiB. */
  const memory = async () => (await metric("process_resident_memory_bytes")) / 2 ** 20;
  /** Bytes on the machine's cable, and seconds of a processor that graftlet takes, while nobody wants anything. */
  const rest = async () => {
    const spent = async () => {
      const table = parseNetDev(await lab.edge.mustInside(["cat", "/proc/net/dev"]));
      const cable = table.find(({ name }) => name === "home0");
      assert.ok(cable);
      return { bytes: cable.rx.bytes + cable.tx.bytes, processor: await metric("process_cpu_seconds_total") };
    };
    const before = await spent();
    await new Promise((resolve) => setTimeout(resolve, restSeconds * 1_000));
    const after = await spent();
    return { bytes: after.bytes - before.bytes, processor: after.processor - before.processor };
  };
  /** Seconds in which so many bytes go through a link to the machine by a cat there. */
  const byCat = async (direction: string, bytes: number) => {
    const { cluster, edge } = lab;
    const knownHostsFile = join(edge.layout.dir, "known_hosts_of_cat");
    writeFileSync(knownHostsFile, edge.login.known_hosts);
    const settings = { ...edge.ssh, user: "root", privateKeyFile: loginKeyFile(edge.layout), knownHostsFile };
    const entry = join(import.meta.dirname, "../harness/link-cat-entry.ts");
    const argv = [process.execPath, entry, JSON.stringify(settings), direction, String(bytes)];
    return Number(await must(networkArgv(cluster.layout, argv), { timeoutMs: 120_000 }));
  };
  /** Addresses at which the cluster has the Service on the machine. */
  const published = async () => {
    const labels = "endpointslice.kubernetes.io/managed-by=graftlet.dev,kubernetes.io/service-name=there";
    const text = await lab.cluster.mustKubectl(["get", "endpointslices", `-l${labels}`, "-ojson"]);
    const { items } = JSON.parse(text) as { items: readonly EndpointSlice[] };
    return items.flatMap(({ endpoints }) => (endpoints ?? []).flatMap(({ addresses }) => addresses));
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

  for (const { from, to, over } of ways) {
    test(`serves a thousand connections at once from ${from} to ${to}`, async (t) => {
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

    test(`refuses no connection from ${from} to ${to} during ${loadSeconds} s of load, and the node stays responsive`, async (t) => {
      const { cluster } = lab;
      const address = await addressOf(cluster, to);
      const script = `
        one() { exec 3<>/dev/tcp/${address}/80 && printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' >&3 &&
          while read -r line <&3 || [ -n "$line" ]; do last=$line; line=; done; exec 3>&-; case $last in web|far) ;; *) return 1;; esac; }
        for lane in 1 2 3 4 5 6 7 8; do
          ( SECONDS=0; good=0; bad=0
            while [ $SECONDS -lt ${loadSeconds} ] || [ $((good + bad)) -lt ${leastConnections / 8} ]; do if one; then good=$((good + 1)); else bad=$((bad + 1)); fi; done; echo $good $bad ) &
        done
        wait`;
      const before = await memory();
      const asked = lab.said(from, script);
      const lease = oldestLease(asked);
      const name = `meanwhile-${from}`;
      const began = Date.now();
      await cluster.apply([server(name, placed)]);
      await cluster.mustKubectl(["wait", "--for=condition=Ready", `pod/${name}`, "--timeout=20s"]);
      const ready = (Date.now() - began) / 1_000;
      await cluster.mustKubectl(["delete", "pod", name, "--timeout=20s"]);
      const lines = (await asked).split("\n").map((line) => line.split(" ").map(Number));
      const seconds = (Date.now() - began) / 1_000;
      const oldest = await lease;
      const grown = (await memory()) - before;
      const sum = (at: number) => lines.reduce((total, line) => total + (line[at] ?? 0), 0);
      t.diagnostic(
        `${(sum(0) / seconds).toFixed(0)} a second; the lease was ${oldest.toFixed(1)} s old at most, a pod Ready after ${ready.toFixed(1)} s, graftlet grew by ${grown.toFixed(0)} MiB`,
      );
      assert.equal(sum(1), 0);
      assert.ok(sum(0) >= leastConnections, `${sum(0)} were made`);
      assert.ok(oldest < 20, `the lease was ${oldest} s old`);
      assert.ok(grown < 150, `graftlet grew by ${grown} MiB`);
    });

    test(`transfers ${transferMiB} MiB from ${from} to ${to} completely, in bounded memory`, async (t) => {
      const before = await memory();
      const seconds = await arrivesWhole(lab, { from, to, bytes: transferMiB * 2 ** 20, within: 120 });
      const grown = (await memory()) - before;
      const cat = await byCat(over, transferMiB * 2 ** 20);
      t.diagnostic(
        `${(transferMiB / seconds).toFixed(0)} MiB/s, ${(cat / seconds).toFixed(2)} of a cat's ${(transferMiB / cat).toFixed(0)} over the link, graftlet ${before.toFixed(0)} MiB and ${grown.toFixed(0)} more`,
      );
      assert.ok(grown < 150, `graftlet grew by ${grown} MiB`);
      assert.ok(cat / seconds > leastOfCat, `a cat takes ${cat} s, and the way of pods ${seconds} s`);
    });
  }

  test("a pod that connects and closes as fast as it can breaks neither the link nor its other connections", async (t) => {
    const { cluster } = lab;
    const address = await addressOf(cluster, "web");
    const losses = () => metric("graftlet_link_losses_total");
    const before = await losses();
    const script = `
      exec 9<>/dev/tcp/${address}/80
      for lane in 1 2 3 4 5 6 7 8; do
        ( SECONDS=0; count=0
          while [ $SECONDS -lt 10 ]; do exec 3<>/dev/tcp/${address}/80 && count=$((count + 1)); exec 3>&-; done 2>/dev/null
          echo $count ) &
      done
      wait
      printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' >&9
      while read -r -t 60 line <&9 || [ -n "$line" ]; do last=$line; line=; done
      echo $last`;
    const lines = (await lab.said("far", script)).split("\n");
    const answer = lines.pop();
    const opened = lines.reduce((sum, line) => sum + Number(line), 0);
    t.diagnostic(`${(opened / 10).toFixed(0)} a second`);
    assert.equal(answer, "web");
    assert.equal(await losses(), before);
  });

  test("five hundred idle Services cost neither traffic nor CPU", async (t) => {
    const { cluster, edge } = lab;
    const before = await rest();
    const names = Array.from({ length: 500 }, (_, index) => `idle-${index}`);
    await cluster.apply(names.map((name) => service(name, { selector: { app: "nobody" } })));
    const last = await addressOf(cluster, names.at(-1) ?? "");
    const known = async () => (await edge.mustInside(["nft", "list", "ruleset"])).includes(`${last} . 80`);
    await cluster.waitFor("the last one to be known on the machine", known, 20_000);
    await new Promise((resolve) => setTimeout(resolve, 5_000));
    const after = await rest();
    t.diagnostic(
      `in ${restSeconds} s ${after.bytes} bytes and ${after.processor.toFixed(2)} s of a processor; without them ${before.bytes} and ${before.processor.toFixed(2)}`,
    );
    assert.ok(after.bytes < 1.5 * before.bytes + 16 * 1024);
    assert.ok(after.processor < before.processor + 0.5);
    assert.equal((await lab.inside("far", get(`http://web/hostname`))).text, "web");
  });

  test("after graftlet's Pod is killed, only the Service's own pods answer until its endpoints name the next address", async (t) => {
    const { cluster } = lab;
    const before = await published();
    const answers = new Set<string>();
    const over = new AbortController();
    const asking = (async () => {
      while (!over.signal.aborted) answers.add((await lab.inside("web", get("http://there/hostname", 1))).text);
    })();
    const began = Date.now();
    const killed = (await releaseOf(lab).kill()).status?.podIP ?? "";
    assert.deepEqual(before, [killed]);
    const moved = async () => {
      const now = await published();
      return now.length === 1 && now[0] !== killed;
    };
    await cluster.waitFor("the next address", moved, 60_000);
    const window = (Date.now() - began) / 1_000;
    over.abort();
    await asking;
    t.diagnostic(`${window.toFixed(1)} s from the kill to endpoints with the next address`);
    await cluster.waitFor("the Service to answer", async () => {
      const { text } = await lab.inside("web", get("http://there/hostname"));
      answers.add(text);
      return text === "far";
    });
    assert.deepEqual([...answers].filter(Boolean), ["far"]);
  });

  test("a link outage of a minute ends connections, and both directions work within five seconds once the link is back", async (t) => {
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
