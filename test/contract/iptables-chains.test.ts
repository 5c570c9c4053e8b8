import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { localHost } from "../../providers/local/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createIptablesChains, ownedIptablesChains } from "../../src/node/iptables-chains.ts";
import { wrapped } from "../../src/seams/command.ts";
import type { Host } from "../../src/seams/host.ts";
import { silentLog } from "../../src/lib/log.ts";
import { fakeClock } from "../fakes/clock.ts";
import { must } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";

const namespace = `graftlet-iptables-${process.pid}`;
const { signal } = new AbortController();

/** A target whose network is a namespace of its own. */
const local = localHost({ clock: systemClock() });
const host: Pick<Host, "run"> = {
  run: (argv, options) => local.run(wrapped(["ip", "netns", "exec", namespace, "env", "--"], argv), options),
};
const inside = (...argv: readonly string[]) => must(["ip", "netns", "exec", namespace, ...argv]);
const listed = async (program: string, table: string) =>
  (await inside(program, "-t", table, "-S")).split("\n").filter((line) => line !== "" && !line.startsWith("-P"));

const ofFilter = [
  "-N KUBE-FIREWALL",
  "-N KUBE-KUBELET-CANARY",
  "-A INPUT -j KUBE-FIREWALL",
  "-A OUTPUT -j KUBE-FIREWALL",
  '-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP',
];
const ofMangle = ["-N KUBE-IPTABLES-HINT", "-N KUBE-KUBELET-CANARY"];
const own = "-A INPUT -p tcp -m tcp --dport 9 -j DROP";

/** Runs the service until the chains exist, and ends it. */
async function created(clock = fakeClock()): Promise<void> {
  const stop = new AbortController();
  const running = createIptablesChains({ host, clock, log: silentLog() }).run(stop.signal);
  await waitFor("the chains", async () => (await listed("ip6tables", "filter")).length > 0);
  await waitFor("the chains", async () => (await listed("iptables", "mangle")).length === ofMangle.length);
  stop.abort();
  await running;
}

describe("the kubelet's iptables chains", { timeout: 60_000 }, () => {
  before(async () => {
    await must(["ip", "netns", "add", namespace]);
    await inside("iptables", ...own.split(" "));
  });
  after(async () => void (await must(["ip", "netns", "delete", namespace])));

  test("creates the kubelet's chains for IPv4 and IPv6, before other programs' rules", async () => {
    await created();
    const [newChains, jumps] = [ofFilter.slice(0, 2), ofFilter.slice(2)];
    const expected = [...newChains, ...jumps.slice(0, 1), own, ...jumps.slice(1)];
    assert.deepEqual(await listed("iptables", "filter"), expected);
    assert.deepEqual(await listed("iptables", "mangle"), ofMangle);
    assert.deepEqual(await listed("iptables", "nat"), ["-N KUBE-KUBELET-CANARY"]);
    assert.deepEqual(await listed("ip6tables", "mangle"), ofMangle);
    assert.deepEqual(await listed("ip6tables", "filter"), ["-N KUBE-KUBELET-CANARY"]);
  });

  test("re-creates flushed chains within a minute, without duplicating existing rules", async () => {
    const clock = fakeClock();
    const stop = new AbortController();
    const running = createIptablesChains({ host, clock, log: silentLog() }).run(stop.signal);
    await waitFor("the first check", () => clock.pending > 0);
    for (const flag of ["-F", "-X"]) await inside("iptables", "-t", "mangle", flag);
    await clock.advance(60_000);
    await waitFor("the chains", async () => (await listed("iptables", "mangle")).length === ofMangle.length);
    stop.abort();
    await running;
    assert.equal((await listed("iptables", "filter")).length, ofFilter.length + 1);
  });

  test("lists the chains as one owned resource, whose removal keeps other programs' rules", async () => {
    const found = await ownedIptablesChains(host, signal);
    assert.deepEqual(
      found.map(({ name }) => name),
      ["iptables chains KUBE-IPTABLES-HINT, KUBE-FIREWALL and KUBE-KUBELET-CANARY"],
    );
    for (const resource of found) await resource.remove(signal);
    assert.deepEqual(await listed("iptables", "filter"), [own]);
    for (const table of ["mangle", "nat"]) assert.deepEqual(await listed("iptables", table), []);
    for (const table of ["mangle", "nat", "filter"]) assert.deepEqual(await listed("ip6tables", table), []);
    assert.deepEqual(await ownedIptablesChains(host, signal), []);
  });

  test("creates no chains on a target without iptables", async () => {
    const bare: Pick<Host, "run"> = {
      run: (argv, options) => local.run(wrapped(["env", "PATH=/var/empty", "/usr/bin/busybox"], argv), options),
    };
    assert.deepEqual(await ownedIptablesChains(bare, signal), []);
  });
});
