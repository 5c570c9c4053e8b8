import type { Runs } from "./matrix.ts";

/** Seconds of those that `make test` runs. */
const always = {
  helm: 300,
  "helm-service-account": 50,
  "in-pod": 20,
  tunnel: 145,
};
/** Seconds of those that `make test-more` runs. */
const more = {
  egress: 150,
  fleet: 120,
  "fleet-faults": 330,
  "fleet-many": 120,
  "fleet-outside": 160,
  "fleet-replicas": 405,
  "fleet-ssh": 110,
  "helm-admission": 45,
  "helm-first": 120,
  "helm-monitoring": 100,
  "helm-release": 150,
  "helm-reverse": 150,
  "helm-storage": 60,
  hostile: 60,
  "tunnel-docker": 100,
};

/** Seconds of those that only `make test-all` runs. */
const byHand = { "helm-rollout": 90, "pod-sweep": 100, "tunnel-load": 270, "tunnel-variants": 170 };

/** Files of test/integration that bring a machine or a provider of their own, beside a cluster on containerd: releases of the chart, and
 *  what the link carries. */
export const bringsOwn: Readonly<Record<string, Runs>> = Object.fromEntries([
  ...Object.entries(always).map(([name, seconds]) => [name, runs({ on: ["cri"], seconds })] as const),
  [
    "helm-rights",
    { on: [], more: ["cri-2.4"], why: "uses each right, and devices of DRA need CDI", fits: ["cri-2.4"], seconds: 135 },
  ],
  ...Object.entries(byHand).map(([name, seconds]) => [name, runs({ on: [], seconds })] as const),
  ["lock-lost", { on: [], more: ["ssh"], why: "over SSH another machine's process has the lock", seconds: 170 }],
  ...Object.entries(more).map(([name, seconds]) => [name, runs({ on: [], more: ["cri"], seconds })] as const),
]);

function runs(where: Pick<Runs, "on" | "more" | "seconds">): Runs {
  return { ...where, why: "brings a provider of its own", fits: ["cri", "cri-2.4"] };
}
