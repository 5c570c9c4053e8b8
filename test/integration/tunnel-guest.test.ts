import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { V1EndpointSlice } from "@kubernetes/client-node";
import { leadThrough, slowDown } from "../harness/guest-netem.ts";
import { destinations, prepareProxy, proxyLog, runProxy } from "../harness/guest-proxy.ts";
import { type GuestNeighbour, startGuestNeighbour } from "../machines/guest-neighbour.ts";
import { addressOf, server, service } from "./helm/tunnel.ts";
import { startTunnelLab, type TunnelLab } from "./helm/tunnel-lab.ts";
import { type BothWays, bothWays, distances } from "./helm/tunnel-ways.ts";
import { placed } from "./helm/workload.ts";

describe("network: tunneled in a guest: kube-proxy in IPVS mode, netem", {
  timeout: 1_500_000,
}, () => {
  let lab: TunnelLab;
  let guest: GuestNeighbour;
  let ways: BothWays;

  /** Endpoints of a Service in slices of graftlet's, or of the cluster's own controller. */
  const endpoints = async (name: string, by: "graftlet.dev" | "endpointslice-controller.k8s.io") => {
    const labels = `kubernetes.io/service-name=${name},endpointslice.kubernetes.io/managed-by=${by}`;
    const listed = await lab.cluster.mustKubectl(["get", "endpointslices", `-l${labels}`, "-ojson"]);
    return (JSON.parse(listed) as { items: V1EndpointSlice[] }).items.flatMap(({ endpoints: some, ports }) =>
      (some ?? []).map(({ addresses: [address], conditions }) => ({
        at: `${address}:${ports?.find((port) => port.name === "http")?.port}`,
        ready: conditions?.ready ?? true,
      })),
    );
  };
  /** Pods that answer a process of the guest: on twenty connections, one after the other. */
  const answers = async (name: string) => {
    const url = `http://${await addressOf(lab.cluster, name)}/hostname?[1-20]`;
    const ask = ["curl", "--silent", "--max-time", "20", "--header", "Connection: close", "--write-out", "\\n", url];
    const said = await guest.must(["sh", "-c", '"$@" || echo none', "sh", ...ask]);
    return [...new Set(said.trim().split("\n"))].toSorted().join(" ");
  };
  const answered = (name: string, by: string) =>
    lab.cluster.waitFor(`${by} to answer at ${name}`, async () => (await answers(name)) === by, 15_000);
  /** Opens or closes a pod's gate: it serves either way, and is ready or not. */
  const gate = (pod: string, status: "True" | "False") =>
    lab.cluster.mustKubectl([
      "patch",
      "pod",
      pod,
      "--subresource=status",
      `--patch=${JSON.stringify({ status: { conditions: [{ type: "open", status }] } })}`,
    ]);

  /** A pod of the machine, of the Service `both`. */
  const onMachine = (name: string, more: object = {}) => {
    const pod = server(name, { ...placed, ...more });
    return { ...pod, metadata: { name, labels: { part: "both" } } };
  };

  before(async () => {
    lab = await startTunnelLab("tunnel-guest");
    const { cluster } = lab;
    guest = await startGuestNeighbour(cluster, "tunnel-guest-box");
    await prepareProxy(cluster, guest);
    ways = await bothWays(lab);
    await ways.answer();
    await cluster.apply([service("both", { selector: { part: "both" } })]);
    await cluster.mustKubectl(["label", "pod", "web", "part=both"]);
  });
  after(async () => {
    await guest?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  for (const [mode, other] of [
    ["ipvs", "nftables"],
    ["nftables", "ipvs"],
  ] as const)
    test(`kube-proxy in ${mode} mode on another node follows pods that become ready, terminate and are created`, async (t) => {
      const { cluster } = lab;
      const [first, second] = [`first-${mode}`, `second-${mode}`];
      const there = { name: "there", address: (await addressOf(cluster, "there")) ?? "" };
      await cluster.apply([onMachine(first, { readinessGates: [{ conditionType: "open" }] })]);
      await runProxy(cluster, guest, mode);
      const own = (await endpoints("there", "graftlet.dev")).map(({ at }) => at);
      assert.equal(own.length, 1);
      const led = (by: "ipvs" | "nftables") => destinations(guest, by, there);
      const settled = async () => (await led(mode)).join() === own.join() && (await led(other)).length === 0;
      await cluster.waitFor(`kube-proxy to lead by ${mode} alone`, settled, { explain: () => proxyLog(guest) });
      assert.equal(await answers("there"), "far");
      const foreign = await endpoints("there", "endpointslice-controller.k8s.io");
      assert.ok(foreign.length === 1 && foreign.every(({ at, ready }) => at.startsWith("10.88.") && !ready));

      const took = async (what: string, change: () => Promise<unknown>, by: string) => {
        await change();
        const began = performance.now();
        await answered("both", by);
        t.diagnostic(`${what}: after ${((performance.now() - began) / 1_000).toFixed(1)} s ${by}`);
        assert.equal(await answers("both"), by);
      };
      await answered("both", "web");
      await took("ready", () => gate(first, "True"), `${first} web`);
      await took("not ready", () => gate(first, "False"), "web");
      const replaced = async () => {
        await cluster.apply([onMachine(second)]);
        await cluster.mustKubectl(["delete", "pod", first]);
        await cluster.mustKubectl(["wait", "--for=condition=Ready", `pod/${second}`, "--timeout=60s"]);
      };
      await took("replaced", replaced, `${second} web`);
      await cluster.mustKubectl(["delete", "pod", second]);
    });

  describe("delay and packet loss, simulated by netem, between the cluster and the machine", () => {
    before(async () => {
      await leadThrough(guest, lab);
      await ways.answer();
    });
    for (const { roundTripMs, lost } of distances)
      test(`names, connections and bytes in both directions work at ${roundTripMs} ms round trip and ${lost}% packet loss`, async (t) => {
        await using netem = await slowDown(guest, { roundTripMs, lost });
        for (const line of await ways.tried({ roundTripMs, bytes: 8 * 2 ** 20, within: 120 })) t.diagnostic(line);
        const packets = await netem.lost();
        t.diagnostic(`${packets} packets lost`);
        assert.equal(packets > 10, lost > 0);
      });
  });
});
