import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import { createPage } from "../../src/page/server.ts";
import { fakeEvents, fakeFleet, fakeMachine, fakeNodeWork, fakeReports } from "../fakes/page.ts";
import { look, rowsIn, textOf } from "../harness/browser.ts";
import { waitFor } from "../harness/wait.ts";

/** A page of nodes in memory. */
async function served(nodes: number, pods: number, fleet?: ReturnType<typeof fakeFleet>) {
  const clock = systemClock();
  const names = Array.from({ length: nodes }, (_, index) => `edge-${index + 1}`);
  const reports = { ...fakeReports(names, clock, "ssh"), ...(fleet && { fleet }) };
  const works = names.map((name) => fakeNodeWork({ name, pods }, clock.now));
  for (const [index, node] of reports.nodes.entries()) {
    node.onRunning(works[index]);
    fakeEvents(node, node.name);
  }
  const log = silentLog();
  const page = createPage({ address: "127.0.0.1", port: 0, reports, version: "1", clock, log });
  const stop = new AbortController();
  const ended = page.run(stop.signal);
  await page.ready(stop.signal);
  return {
    reports,
    url: `http://127.0.0.1:${page.address()?.port}/`,
    looks: () => works.reduce((sum, work) => sum + work.looks(), 0),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await ended;
    },
  };
}

/** In the browser: milliseconds of each of 120 frames in which the table of pods is scrolled on. */
const scrolled = `(async () => {
  const took = [];
  for (let frame = 0; frame < 120; frame++) {
    const began = performance.now();
    document.querySelector(".sight").scrollTop += 500;
    await new Promise(requestAnimationFrame);
    took.push(performance.now() - began);
  }
  return took;
})()`;

const second = (seconds: number) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

test("stays responsive with ten nodes of 250 pods each, and measures nothing once the page is closed", async (t) => {
  await using page = await served(10, 250);
  await using looked = await look(page.url);
  const { page: tab, faults, requests } = looked;
  const totals = () => textOf(tab, "#totals");
  await waitFor("all pods to be there", async () => (await totals()) === "10 nodes, 2500 pods");
  await tab.waitForSelector(".legend li");
  const before = await tab.metrics();
  const from = performance.now();
  const frames = (await tab.evaluate(scrolled)) as readonly number[];
  await second(9);
  const busy = ((await tab.metrics()).TaskDuration ?? 0) - (before.TaskDuration ?? 0);
  const share = busy / ((performance.now() - from) / 1000);
  const median = frames.toSorted((one, other) => one - other)[frames.length / 2] ?? 0;
  t.diagnostic(
    `median frame while scrolling ${median.toFixed(0)} ms; the tab is busy ${(share * 100).toFixed(0)} % of the time`,
  );
  assert.ok(median < 100, `${median} ms`);
  assert.ok(share < 0.6, `${share}`);
  const rows = await rowsIn(tab, "pods");
  assert.ok(rows.length > 10 && rows.length < 60, `${rows.length} rows in the document`);
  assert.deepEqual(faults, []);
  assert.deepEqual(
    requests.filter((url) => !url.startsWith(page.url)),
    [],
  );
  await looked[Symbol.asyncDispose]();
  await second(1);
  const looks = page.looks();
  await second(7);
  assert.equal(page.looks(), looks);
});

test("shows names of pods and log lines as text, and keeps filter, order and selection", async () => {
  await using page = await served(2, 30);
  const markup = "<img src=x onerror=document.title='taken'>";
  page.reports.node("edge-1")?.event?.({ kind: "Pod", namespace: "shop", name: markup }, "Warning", markup, markup);
  await using looked = await look(page.url);
  const { page: tab, faults } = looked;
  await tab.waitForSelector("#pods .space .row");
  await waitFor("the event", async () => (await textOf(tab, "#notes")).includes(markup));
  assert.equal(await tab.title(), "graftlet");
  assert.equal((await tab.$$("#notes img")).length, 0);
  await tab.type("input", "edge-2 crash");
  await waitFor("the filter", async () => (await rowsIn(tab, "pods")).length === 1);
  assert.match((await rowsIn(tab, "pods"))[0] ?? "", /search-edge-2-7edge-2CrashLoopBackOff0\/112/);
  await tab.click("#pods .space .row:not([hidden])");
  await waitFor("the pod", async () => (await textOf(tab, "#scope")).includes("search-edge-2-7"));
  assert.deepEqual(faults, []);
});

test("lists thousands of machines of other replicas, and shows a change of one within seconds", async (t) => {
  const machines = Array.from({ length: 3_000 }, (_, index) => fakeMachine(`far-${index + 1}`));
  const markup = "<img src=x onerror=document.title='taken'>";
  const why = { ready: false, reason: "LinkDown", message: markup };
  const fleet = fakeFleet([...machines, fakeMachine("far-bad", why)]);
  await using page = await served(1, 5, fleet);
  await using looked = await look(page.url);
  const { page: tab, faults } = looked;
  await waitFor("all machines to be there", async () => (await textOf(tab, "#machines h3 + span")) === "3001");
  assert.equal(await textOf(tab, "#totals"), "1 node, 5 pods; 3001 other machines");
  assert.equal(
    await textOf(tab, "#machines .chips"),
    "2 replicasgraftlet-a (this one) · 1 machinegraftlet-b · 3001 machines",
  );
  const rows = () => rowsIn(tab, "machines");
  assert.equal((await rows())[0], `far-badgraftlet-bLinkDown3192.0.2.8${markup}`);
  assert.equal((await rows())[1], "far-1graftlet-bReady3192.0.2.8");
  assert.ok((await rows()).length < 60, `${(await rows()).length} rows in the document`);
  assert.deepEqual([await tab.title(), (await tab.$$("#machines img")).length], ["graftlet", 0]);
  const before = await tab.metrics();
  const from = performance.now();
  const { owner: _none, ...unowned } = fakeMachine("far-7", { ready: false, reason: "Unowned" });
  fleet.change(machines.map((machine) => (machine.name === "far-7" ? unowned : machine)));
  await waitFor("the change", async () => (await rows())[0]?.startsWith("far-7nobodyUnowned3") ?? false);
  t.diagnostic(`a change was shown after ${(performance.now() - from).toFixed(0)} ms`);
  assert.equal(await textOf(tab, "#machines h3 + span"), "3000");
  await second(5);
  const busy = ((await tab.metrics()).TaskDuration ?? 0) - (before.TaskDuration ?? 0);
  const share = busy / ((performance.now() - from) / 1000);
  t.diagnostic(`with 3,000 other machines the tab is busy ${(share * 100).toFixed(0)} % of the time`);
  assert.ok(share < 0.6, `${share}`);
  await tab.click('[data-node="edge-1"]');
  await waitFor("one node", async () => (await textOf(tab, "#scope")).startsWith("edge-1"));
  assert.equal((await tab.$$("#machines[hidden]")).length, 1);
  assert.deepEqual(faults, []);
});
