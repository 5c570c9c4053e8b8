import { bareLoop } from "./bench-cri.ts";
import { atLeastTimes, atMost, atMostBeyond, atMostTimes } from "./reach.ts";
import type { Figure } from "./report.ts";

const toKubelet = (limit: number) => [atMostTimes(limit, "graftlet", "kubelet")];
const toLoop = (limit: number) => atMostTimes(limit, "graftlet", bareLoop);
const halfPeriod = { text: "500 ms", of: () => 500 };

/** What `make bench` measures. */
export const criFigures: readonly Figure[] = [
  {
    id: "start",
    title: "create → Running, one by one",
    unit: "ms",
    many: true,
    reach: [...toKubelet(0.33), toLoop(1.2)],
  },
  {
    id: "burst",
    title: "burst of 50: last Running",
    unit: "s",
    many: false,
    reach: [...toKubelet(0.75), toLoop(1.3)],
  },
  { id: "burst cpu", title: "CPU for the burst", unit: "s", many: false, reach: toKubelet(0.8) },
  { id: "burst memory", title: "resident memory after the burst", unit: "MiB", many: false, reach: toKubelet(1) },
  {
    id: "burst silence",
    title: "slowest /healthz response during the burst",
    unit: "ms",
    many: false,
    reach: [atMost(100, "graftlet", "ms")],
  },
  { id: "delete", title: "delete → gone", unit: "ms", many: true, reach: toKubelet(0.15) },
  {
    id: "driver claim",
    title: "create → Running with a claim on a driver's volume",
    unit: "ms",
    many: true,
    reach: toKubelet(1.1),
  },
  {
    id: "local claim",
    title: "create → Running with a claim on a local volume",
    unit: "ms",
    many: true,
    reach: toKubelet(1.1),
  },
  {
    id: "driver claim gone",
    title: "delete → gone with a claim on a driver's volume",
    unit: "ms",
    many: true,
    reach: toKubelet(1.1),
  },
  {
    id: "local claim gone",
    title: "delete → gone with a claim on a local volume",
    unit: "ms",
    many: true,
    reach: toKubelet(1.1),
  },
  {
    id: "burst gone",
    title: "50 deleted at once: last gone",
    unit: "s",
    many: false,
    reach: [...toKubelet(0.5), toLoop(1.3)],
  },
  { id: "kill", title: "main process killed → seen at the API", unit: "ms", many: true, reach: toKubelet(0.15) },
  {
    id: "ready",
    title: "fit for its probe (1 s) → Ready at the API",
    unit: "ms",
    many: true,
    reach: [atMostBeyond(halfPeriod, 30, "graftlet", "ms")],
  },
  { id: "said ready", title: "probe passes → Ready at the API", unit: "ms", many: true, reach: [] },
  { id: "exec", title: "kubectl exec true", unit: "ms", many: true, reach: toKubelet(0.85) },
  {
    id: "exec rate",
    title: "1 GiB through exec",
    unit: "MiB/s",
    many: false,
    reach: [atLeastTimes(1.3, "graftlet", "kubelet")],
  },
  {
    id: "log rate",
    title: "1 GiB through logs",
    unit: "MiB/s",
    many: false,
    reach: [atLeastTimes(4, "graftlet", "kubelet")],
  },
  { id: "writes", title: "API writes from create to gone", unit: "a pod", many: false, reach: toKubelet(0.6) },
  { id: "status writes", title: "of these, for the pod's status and end", unit: "a pod", many: false, reach: [] },
  { id: "cpu", title: "CPU for all of the above", unit: "s", many: false, reach: [] },
  {
    id: "wrong probes",
    title: "50 exec probes a second: wrong results",
    unit: "",
    many: false,
    reach: [atMost(0, "graftlet", "")],
  },
  { id: "probe cpu", title: "CPU during the exec probes", unit: "s a minute", many: false, reach: toKubelet(0.9) },
  {
    id: "probe rate",
    title: "exec probes made",
    unit: "a second",
    many: false,
    reach: [atLeastTimes(0.95, "graftlet", "kubelet")],
  },
  {
    id: "probe runtime cpu",
    title: "containerd's CPU during the exec probes",
    unit: "s a minute",
    many: false,
    reach: [],
  },
  { id: "idle cpu", title: "CPU, idle, 110 pods", unit: "s a minute", many: false, reach: toKubelet(0.08) },
  { id: "idle runtime cpu", title: "containerd's CPU, idle, 110 pods", unit: "s a minute", many: false, reach: [] },
  { id: "memory", title: "resident memory, 110 pods", unit: "MiB", many: false, reach: toKubelet(0.7) },
  { id: "idle calls", title: "CRI calls, idle, 110 pods", unit: "a minute", many: false, reach: toKubelet(0.2) },
  { id: "idle writes", title: "API writes, idle, 110 pods", unit: "a minute", many: false, reach: [] },
  {
    id: "restart",
    title: "restart under 110 pods → all adopted, node Ready",
    unit: "s",
    many: false,
    reach: toKubelet(0.4),
  },
  {
    id: "restart writes",
    title: "pod writes after the restart",
    unit: "",
    many: false,
    reach: [atMost(0, "graftlet", "")],
  },
];
