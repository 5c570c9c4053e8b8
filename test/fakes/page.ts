import type { Node, Pod } from "../../src/objects.ts";
import type { Clock } from "../../src/lib/clock.ts";
import { rfc3339 } from "../../src/lib/rfc3339.ts";
import {
  type NodeReporter,
  type NodeIntrospection,
  type ReportedNode,
  createReportedNode,
} from "../../src/report/reported-node.ts";
import { createSignal } from "../../src/lib/signal.ts";
import type { FleetReport, MachineReport, ObservedFleet } from "../../src/report/fleet-report.ts";
import { createNotes } from "../../src/report/notes.ts";

/** What nodes tell their process, and both ends of it. */
export function fakeReports(names: readonly string[], clock: Pick<Clock, "now">, provider = "cri") {
  const notes = createNotes(clock);
  const all = new Map(
    names.map((name): [string, ReportedNode & NodeReporter] => [
      name,
      createReportedNode({ name, provider }, notes.event.bind(undefined, name)),
    ]),
  );
  const nodes = [...all.values()];
  const changed = createSignal();
  return {
    nodes,
    onNodesChange: changed.subscribe,
    notes,
    node: (name: string) => all.get(name),
    /** Another node comes. */
    add(name: string) {
      nodes.push(createReportedNode({ name, provider }));
      changed.send();
    },
  };
}

/** A machine that the replica `graftlet-b` serves. */
export function fakeMachine(name: string, more: Partial<MachineReport> = {}): MachineReport {
  const ready = { ready: true, reason: "NodeReady", message: "the Node is Ready" };
  return { name, owner: "graftlet-b", ...ready, address: "192.0.2.8", pods: 3, ...more };
}

/** A release of two replicas, of which this process is `graftlet-a`. */
export function fakeFleet(machines: readonly MachineReport[]): ObservedFleet & {
  /** Number of reports that were asked for. */
  looks(): number;
  /** Number of listeners. */
  listening(): number;
  /** Other machines are there. */
  change(machines: readonly MachineReport[]): void;
} {
  const changed = createSignal();
  let [looks, listening] = [0, 0];
  let now = machines;
  return {
    looks: () => looks,
    listening: () => listening,
    onChange(listener) {
      const forget = changed.subscribe(listener);
      listening += 1;
      return () => {
        forget();
        listening -= 1;
      };
    },
    report(): FleetReport {
      looks += 1;
      const replicas = [
        { name: "graftlet-a", leaving: false, machines: 1 },
        { name: "graftlet-b", leaving: false, machines: now.length },
      ];
      return { replica: "graftlet-a", current: true, replicas, machines: now };
    },
    change(machines) {
      now = machines;
      changed.send();
    },
  };
}

export interface FakeNode {
  readonly name: string;
  readonly pods: number;
}

/** A node at work with as many pods as asked for, whose usage moves with each look. @param now milliseconds since the epoch. */
export function fakeNodeWork({ name, pods }: FakeNode, now: () => number): NodeIntrospection & { looks(): number } {
  let looks = 0;
  const all = Array.from({ length: pods }, (_, index) => fakePod(name, index, now()));
  return {
    looks: () => looks,
    standalone: false,
    onChange: () => () => undefined,
    node: () => fakeNode(name, pods),
    pods: () => all,
    podCount: () => all.length,
    summary: () => {
      looks += 1;
      return Promise.resolve(fakeSummary(all, now(), looks + name.length * 7 + name.charCodeAt(name.length - 1) * 3));
    },
  };
}

/** Events as a node writes them. */
export function fakeEvents({ event }: NodeReporter, name: string): void {
  const about = { kind: "Pod", namespace: "shop", name: `web-${name}-3` };
  event?.({ kind: "Node", name }, "Normal", "Starting", "Starting kubelet.");
  event?.(about, "Normal", "Pulled", 'Successfully pulled image "registry.example/web:1.4" in 1.2s.');
  event?.(about, "Normal", "Started", "Container started");
  event?.(about, "Warning", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503");
}

function fakeNode(name: string, pods: number): Node {
  const condition = (type: string, status: string, reason: string) => ({
    type,
    status,
    reason,
    message: `${reason} of ${name}`,
  });
  return {
    metadata: { name },
    status: {
      capacity: { cpu: "8", memory: "16Gi", pods: String(Math.max(110, pods)) },
      addresses: [{ type: "InternalIP", address: "192.0.2.7" }],
      conditions: [
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        condition("KubeletReachable", "True", "KubeletReachable"),
        condition("Ready", "True", "KubeletReady"),
      ],
      images: [{ names: ["registry.example/web:1.4"], sizeBytes: 150_000_000 }],
      nodeInfo: { kubeletVersion: "v1.36.3", osImage: "Debian GNU/Linux 12 (bookworm)" } as NonNullable<
        Node["status"]
      >["nodeInfo"],
    },
  };
}

const kinds = ["web", "cart", "search", "mail", "batch"];

function fakePod(node: string, index: number, now: number): Pod {
  const name = `${kinds[index % kinds.length]}-${node}-${index}`;
  const failing = index % 41 === 7;
  const state = failing ? { waiting: { reason: "CrashLoopBackOff" } } : { running: { startedAt: rfc3339(now) } };
  return {
    metadata: { uid: `${node}-${index}`, namespace: index % 3 ? "shop" : "default", name },
    spec: { containers: [{ name: "app" }, ...(index % 4 ? [] : [{ name: "proxy" }])] },
    status: {
      phase: "Running",
      startTime: rfc3339(now - index * 61_000),
      containerStatuses: [
        { name: "app", ready: !failing, restartCount: failing ? 12 : 0, image: "", imageID: "", state },
      ],
    },
  };
}

function fakeSummary(pods: readonly Pod[], at: number, round: number): object {
  const time = rfc3339(at);
  const wave = (seed: number) => 1 + Math.sin(round / 5 + seed) / 2;
  const used = (seed: number, scale: number) => ({
    cpu: { time, usageNanoCores: Math.round(2e7 * scale * wave(seed)) },
    memory: { workingSetBytes: Math.round(4e7 * scale * wave(seed * 2)) },
  });
  const traffic = (seed: number, scale: number) => ({
    interfaces: [
      { rxBytes: Math.round(at * scale * (1 + (seed % 3))), txBytes: Math.round((at * scale) / (1 + (seed % 5))) },
    ],
  });
  const fs = (usedBytes: number) => ({ usedBytes, availableBytes: 60e9, capacityBytes: 100e9 });
  return {
    node: { ...used(1, 90), network: traffic(1, 50), fs: fs(31e9), runtime: { imageFs: fs(9e9) } },
    pods: pods.map(({ metadata, spec }, index) => ({
      podRef: { uid: metadata.uid },
      ...used(index, 1 + (index % 7)),
      network: traffic(index, 1 + (index % 9)),
      "ephemeral-storage": fs(1e7 * (1 + (index % 11))),
      containers: spec.containers.map(({ name }, at) => ({
        name,
        ...used(index + at, (1 + (index % 7)) / (1 + at)),
        rootfs: { usedBytes: 6e6 * (1 + (index % 11)) },
        logs: { usedBytes: 1e6 },
      })),
    })),
  };
}
