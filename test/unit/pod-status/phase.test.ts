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
  "the container is not created yet": { main: ["waiting"], phase: "Pending" },
  "the container has no status": { main: ["absent"], phase: "Pending" },
  "one container runs and another has never started": { main: ["running", "waiting"], phase: "Pending" },
  "all containers run": { main: ["running", "running"], phase: "Running" },
  "one container runs and another has exited": { policy: "Never", main: ["running", "exit 1"], phase: "Running" },
  "one container runs and another has no status": { main: ["running", "absent"], phase: "Pending" },
  "an exited container always restarts": { main: ["exit 0"], phase: "Running" },
  "the container is in a crash loop": { main: ["again 1"], phase: "Running" },
  "all containers succeeded and do not restart": {
    policy: "OnFailure",
    main: ["exit 0", "exit 0"],
    phase: "Succeeded",
  },
  "a failed container restarts": { policy: "OnFailure", main: ["exit 0", "exit 3"], phase: "Running" },
  "a failed container does not restart": { policy: "Never", main: ["exit 0", "exit 3"], phase: "Failed" },
  "a container that never restarts waits after its success": { policy: "Never", main: ["again 0"], phase: "Failed" },
  "the containers of a terminating pod succeeded": { main: ["exit 0"], ending: true, phase: "Succeeded" },
  "a container of a terminating pod failed": { main: ["exit 0", "exit 137"], ending: true, phase: "Failed" },
  "a container of a terminating pod still runs": { main: ["running"], ending: true, phase: "Running" },
  "an init container runs": { main: ["waiting"], init: ["running"], phase: "Pending" },
  "an init container has not started yet": { main: ["waiting"], init: ["exit 0", "absent"], phase: "Pending" },
  "an init container failed and does not restart": {
    policy: "Never",
    main: ["waiting"],
    init: ["exit 1"],
    phase: "Failed",
  },
  "a failed init container restarts": { policy: "OnFailure", main: ["waiting"], init: ["exit 1"], phase: "Pending" },
  "an init container is in a crash loop": { main: ["waiting"], init: ["again 1"], phase: "Pending" },
  "init containers have completed and the main container runs": {
    main: ["running"],
    init: ["exit 0"],
    phase: "Running",
  },
  "a sidecar runs but has not passed its startup probe": { main: ["waiting"], sidecars: ["running"], phase: "Pending" },
  "a sidecar restarts while the main container runs": {
    main: ["running"],
    sidecars: ["running"],
    initialized: true,
    phase: "Running",
  },
  "a sidecar runs after the main container has succeeded": {
    policy: "Never",
    main: ["exit 0"],
    sidecars: ["started"],
    initialized: true,
    phase: "Running",
  },
  "a sidecar failed after the main container has succeeded": {
    policy: "Never",
    main: ["exit 0"],
    sidecars: ["exit 1"],
    initialized: true,
    phase: "Succeeded",
  },
  "a sidecar of an initialized pod has never started": {
    main: ["running"],
    sidecars: ["waiting"],
    initialized: true,
    phase: "Pending",
  },
};

for (const [
  name,
  { policy = "Always", main, init = [], sidecars = [], ending: isTerminating = false, initialized = false, phase },
] of Object.entries(cases)) {
  test(`the phase is ${phase} if ${name}`, () => {
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
