import assert from "node:assert/strict";
import { test } from "node:test";
import type { Container, ContainerStatus } from "../../../src/objects.ts";
import { type Phase, podPhase } from "../../../src/pod/phase.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

type Shown = "running" | "started" | "waiting" | "absent" | `exit ${number}` | `again ${number}`;

/** `started` is running and has passed its startup probe; `again N` waits after exit code N. */
function shown(name: string, as: Shown): ContainerStatus[] {
  const base = { name, image: "i", imageID: "", ready: false, restartCount: 0 };
  const exitCode = Number(as.split(" ")[1]);
  if (as === "absent") return [];
  if (as === "running" || as === "started")
    return [{ ...base, started: as === "started", state: { running: { startedAt: "2026-01-01T00:00:00Z" } } }];
  if (as === "waiting") return [{ ...base, state: { waiting: { reason: "ContainerCreating" } }, lastState: {} }];
  if (as.startsWith("exit")) return [{ ...base, state: { terminated: { exitCode } } }];
  return [{ ...base, state: { waiting: { reason: "CrashLoopBackOff" } }, lastState: { terminated: { exitCode } } }];
}

interface Case {
  readonly policy?: "Always" | "OnFailure" | "Never";
  readonly main: readonly Shown[];
  readonly init?: readonly Shown[];
  readonly sidecars?: readonly Shown[];
  readonly ending?: boolean;
  readonly initialized?: boolean;
  readonly phase: Phase;
}

const cases: Record<string, Case> = {
  "not made yet": { main: ["waiting"], phase: "Pending" },
  "no status": { main: ["absent"], phase: "Pending" },
  "one runs, one was never started": { main: ["running", "waiting"], phase: "Pending" },
  "all run": { main: ["running", "running"], phase: "Running" },
  "one runs, one ended": { policy: "Never", main: ["running", "exit 1"], phase: "Running" },
  "one runs, one has no status": { main: ["running", "absent"], phase: "Pending" },
  "ended and restarted always": { main: ["exit 0"], phase: "Running" },
  "crash loop": { main: ["again 1"], phase: "Running" },
  "success that is not restarted": { policy: "OnFailure", main: ["exit 0", "exit 0"], phase: "Succeeded" },
  "failure that is restarted": { policy: "OnFailure", main: ["exit 0", "exit 3"], phase: "Running" },
  "failure that is not": { policy: "Never", main: ["exit 0", "exit 3"], phase: "Failed" },
  "waits after success, never restarted": { policy: "Never", main: ["again 0"], phase: "Failed" },
  "ending, ended well": { main: ["exit 0"], ending: true, phase: "Succeeded" },
  "ending, ended badly": { main: ["exit 0", "exit 137"], ending: true, phase: "Failed" },
  "ending, still runs": { main: ["running"], ending: true, phase: "Running" },
  "init runs": { main: ["waiting"], init: ["running"], phase: "Pending" },
  "init to come": { main: ["waiting"], init: ["exit 0", "absent"], phase: "Pending" },
  "init failed for good": { policy: "Never", main: ["waiting"], init: ["exit 1"], phase: "Failed" },
  "init failed and is restarted": { policy: "OnFailure", main: ["waiting"], init: ["exit 1"], phase: "Pending" },
  "init in a crash loop": { main: ["waiting"], init: ["again 1"], phase: "Pending" },
  "init done, main runs": { main: ["running"], init: ["exit 0"], phase: "Running" },
  "sidecar not started": { main: ["waiting"], sidecars: ["running"], phase: "Pending" },
  "sidecar restarts while main runs": { main: ["running"], sidecars: ["running"], initialized: true, phase: "Running" },
  "sidecar runs, main done": {
    policy: "Never",
    main: ["exit 0"],
    sidecars: ["started"],
    initialized: true,
    phase: "Running",
  },
  "sidecar ended badly, main done": {
    policy: "Never",
    main: ["exit 0"],
    sidecars: ["exit 1"],
    initialized: true,
    phase: "Succeeded",
  },
  "sidecar never started again": { main: ["running"], sidecars: ["waiting"], initialized: true, phase: "Pending" },
};

for (const [
  name,
  { policy = "Always", main, init = [], sidecars = [], ending: isTerminating = false, initialized = false, phase },
] of Object.entries(cases)) {
  test(`${name}: ${phase}`, () => {
    const named = (prefix: string, list: readonly Shown[], more: Partial<Container> = {}) =>
      list.map((_, index) => aContainer(`${prefix}${index}`, more));
    const pod = aPod({
      restartPolicy: policy,
      containers: named("m", main),
      initContainers: [...named("i", init), ...named("s", sidecars, { restartPolicy: "Always" })],
    });
    const statuses = [
      ["m", main],
      ["i", init],
      ["s", sidecars],
    ] as const;
    const all = statuses.flatMap(([prefix, list]) => list.flatMap((as, index) => shown(`${prefix}${index}`, as)));
    assert.equal(podPhase({ pod, statuses: all, isTerminating, initialized }), phase);
  });
}

test("a terminating static pod keeps the phase of its restart policy", () => {
  const pod = aPod({}, { annotations: { "kubernetes.io/config.source": "file" } });
  assert.equal(podPhase({ pod, statuses: shown("c", "exit 0"), isTerminating: true, initialized: true }), "Running");
});
