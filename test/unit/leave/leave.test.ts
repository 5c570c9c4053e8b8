import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../../../src/api/api-error.ts";
import { leave, type LeaveDeps } from "../../../src/leave/leave.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { TargetError } from "../../../src/seams/provider.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { type Call, fakeClient, settle } from "../api/fake-client.ts";

const missing = () => new ApiError("not_found", "not found", { status: 404, reason: "NotFound" });
const forbidden = () => new ApiError("permission_denied", "nodes is forbidden", { status: 403, reason: "Forbidden" });

interface FakePod {
  readonly name: string;
  readonly node: string;
  readonly owner?: string;
  readonly mirror?: boolean;
  readonly labels?: string;
  /** Name of the pod's claim. */
  readonly claim?: string;
  /** Milliseconds from its deletion to its end; undefined if it never terminates. */
  readonly endsAfter?: number;
  deletedAt?: number;
  uid?: string;
}

/** Cluster with nodes one and two, their pods, and the Deployment edge/graftlet with one Pod elsewhere. */
function start(pods: FakePod[], { deployment = true }: { readonly deployment?: boolean } = {}) {
  const clock = fakeClock();
  const nodes = new Map([
    ["one", "True"],
    ["two", "True"],
  ]);
  /** Nodes with volumesInUse. */
  const inUse = new Set<string>();
  const said: string[] = [];
  /** What happened, in order. */
  const done: string[] = [];
  const fail = new Map<string, () => Error>();
  const cleaning = new Map<string, () => Promise<boolean>>();
  let replicas = 1;
  const standing = () => {
    const now = clock.monotonic();
    const ended = (pod: FakePod) => pod.deletedAt !== undefined && now - pod.deletedAt >= (pod.endsAfter ?? Infinity);
    for (const pod of pods.filter(ended)) pods.splice(pods.indexOf(pod), 1);
    return pods;
  };
  const wire = ({ name, node, owner, mirror, claim, deletedAt, uid = `${name}-1` }: FakePod) => ({
    metadata: {
      namespace: "default",
      name,
      uid,
      ...(deletedAt !== undefined && { deletionTimestamp: "2026-01-01T00:00:00Z" }),
      ...(mirror && { annotations: { "kubernetes.io/config.mirror": "x" } }),
      ...(owner && { ownerReferences: [{ kind: owner, name: "o", controller: true }] }),
    },
    spec: {
      nodeName: node,
      ...(claim && { volumes: [{ name: "v", persistentVolumeClaim: { claimName: claim } }] }),
    },
  });
  const list = ({ query }: Call) => {
    const { fieldSelector, labelSelector, limit, continue: from = 0 } = query;
    const all = standing().filter((pod) =>
      labelSelector === undefined ? `spec.nodeName=${pod.node}` === fieldSelector : pod.labels === labelSelector,
    );
    assert.ok(labelSelector !== undefined || Number(limit) > 0);
    const page = all.slice(Number(from), Number(from) + 2);
    const next = Number(from) + 2;
    return { items: page.map(wire), metadata: all.length > next ? { continue: String(next) } : {} };
  };
  const deletePod = (call: Call) => {
    const { gracePeriodSeconds, preconditions } = call.body as {
      readonly gracePeriodSeconds?: number;
      readonly preconditions: { readonly uid: string };
    };
    const pod = standing().find(({ name }) => call.path.endsWith(`/pods/${name}`));
    if (!pod) throw missing();
    if ((pod.uid ?? `${pod.name}-1`) !== preconditions.uid)
      throw new ApiError("conflict", "another", { status: 409, reason: "Conflict" });
    done.push(`${gracePeriodSeconds === 0 ? "forget" : "delete"} ${pod.name}`);
    if (gracePeriodSeconds === 0) pods.splice(pods.indexOf(pod), 1);
    else pod.deletedAt ??= clock.monotonic();
  };
  const ofNode = ({ verb, path, body }: Call) => {
    const [name = "", part] = path.slice("/api/v1/nodes/".length).split("/");
    const ready = nodes.get(name);
    if (ready === undefined) throw missing();
    if (verb === "get") return { metadata: { name }, status: { conditions: [{ type: "Ready", status: ready }] } };
    if (part === "status") {
      assert.deepEqual(body, { status: { volumesInUse: null } });
      inUse.delete(name);
      return {};
    }
    done.push(`${verb === "patch" ? "cordon" : "delete node"} ${name}`);
    if (verb === "delete") {
      assert.equal(inUse.has(name), false, "a volume is in use of a Node that is no more");
      nodes.delete(name);
    }
    return {};
  };
  /** The process dies at the given step, either before the step or before its response arrives. */
  const life = { steps: 0, endsAt: Infinity, answerIsLost: false };
  const dying = <T>(step: () => T): T => {
    life.steps += 1;
    const killed = new CodedError("cancelled", "killed");
    if (life.steps > life.endsAt || (life.steps === life.endsAt && !life.answerIsLost)) throw killed;
    const answer = step();
    if (life.steps === life.endsAt) throw killed;
    return answer;
  };
  const answer = (call: Call) => {
    const broken = fail.get(`${call.verb} ${call.path}`);
    if (broken) throw broken();
    if (call.path.endsWith("/scale")) {
      if (!deployment) throw missing();
      if (call.verb === "patch") {
        replicas = (call.body as { readonly spec: { readonly replicas: number } }).spec.replicas;
        done.push(`scale to ${replicas}`);
        for (const pod of pods) if (pod.labels) pod.deletedAt ??= clock.monotonic();
      }
      return { spec: { replicas }, status: { selector: "app=graftlet" } };
    }
    if (call.verb === "list") return list(call);
    if (call.path.includes("/pods/")) return deletePod(call);
    return ofNode(call);
  };
  const client = fakeClient((call) => dying(() => answer(call)));
  const run = async (options: Partial<Pick<LeaveDeps, "nodes" | "deployment" | "timeoutMs">> = {}) => {
    said.length = 0;
    life.steps = 0;
    const outcome = leave(
      {
        client,
        clock,
        nodes: ["one", "two"],
        deployment: { namespace: "edge", name: "graftlet" },
        timeoutMs: 60_000,
        say: (line) => void said.push(line),
        clean: async (name) => {
          const clean = (await cleaning.get(name)?.()) ?? true;
          return dying(() => {
            if (clean) done.push(`clean ${name}`);
            return clean;
          });
        },
        ...options,
      },
      never,
    );
    const over = new AbortController();
    const end = () => over.abort();
    void outcome.then(end, end);
    for (let second = 0; !over.signal.aborted && second < 600; second++) {
      await clock.advance(1_000);
      await settle();
    }
    return outcome;
  };
  const agent: FakePod = { name: "agent", node: "other", labels: "app=graftlet", endsAfter: 3_000 };
  if (deployment) pods.push(agent);
  return { clock, nodes, inUse, pods, said, done, fail, cleaning, life, run };
}

test("terminates pods with ResourceClaims first, because one of the other pods may be their driver", async () => {
  const t = start([
    { name: "driver", node: "one", endsAfter: 1_000 },
    { name: "user", node: "one", claim: "data", endsAfter: 5_000 },
  ]);
  assert.deepEqual(await t.run({ nodes: ["one"] }), []);
  const asked = t.said.filter((line) => line.includes("deleting pods") || line.includes(": pods have terminated"));
  assert.deepEqual(asked, [
    "node one: deleting pods: default/user",
    "node one: deleting pods: default/driver",
    "node one: pods have terminated",
  ]);
  assert.deepEqual(t.done.slice(0, 3), ["cordon one", "delete user", "delete driver"]);
});

test("waits at most half of the timeout for pods with ResourceClaims", async () => {
  const t = start([
    { name: "web", node: "one", endsAfter: 1_000 },
    { name: "stuck", node: "one", claim: "data" },
  ]);
  assert.deepEqual(await t.run({ nodes: ["one"], timeoutMs: 20_000 }), []);
  assert.deepEqual(t.said.slice(1, 5), [
    "node one: deleting pods: default/stuck",
    "node one: deleting the other pods while pods with volumes are still terminating: default/stuck",
    "node one: deleting pods: default/web",
    "node one: pods have not terminated within 20s; leaving them to the target's cleanup: default/stuck",
  ]);
});

test("clears volumesInUse before deleting the Node", async () => {
  const t = start([]);
  t.inUse.add("one");
  assert.deepEqual(await t.run({ nodes: ["one"] }), []);
  assert.deepEqual([t.inUse.size, t.nodes.has("one")], [0, false]);
});

test("removes nodes in this order: cordon, terminate pods, stop graftlet, clean targets, delete Nodes", async () => {
  const t = start([
    { name: "web", node: "one", endsAfter: 5_000 },
    { name: "job", node: "one", endsAfter: 0 },
    { name: "static", node: "one", mirror: true },
    { name: "agent-of-all", node: "one", owner: "DaemonSet" },
    { name: "log-of-all", node: "one", owner: "DaemonSet" },
    { name: "stranger", node: "other", endsAfter: 0 },
  ]);
  assert.deepEqual(await t.run({ nodes: ["one"] }), []);
  assert.deepEqual(t.done, [
    "cordon one",
    "delete web",
    "delete job",
    "scale to 0",
    "clean one",
    "delete node one",
    "forget static",
    "forget agent-of-all",
    "forget log-of-all",
  ]);
  assert.deepEqual(
    t.pods.map(({ name }) => name),
    ["stranger"],
  );
  assert.deepEqual(t.said, [
    "node one: cordoned",
    "node one: deleting pods: default/web, default/job",
    "node one: pods have terminated",
    "scaled Deployment edge/graftlet to 0; all of its Pods have terminated",
    "node one: force-deleted its remaining pods: default/static, default/agent-of-all, default/log-of-all",
    "node one: removed: its target is clean, its Node object is deleted",
  ]);
});

test("deletes no pods before all nodes are cordoned", async () => {
  const t = start([{ name: "web", node: "one", endsAfter: 1_000 }]);
  t.fail.set("patch /api/v1/nodes/two", () => new CodedError("unavailable", "away"));
  t.clock.after(10_000, () => t.fail.clear());
  assert.deepEqual(await t.run(), []);
  assert.deepEqual(t.done.slice(0, 3), ["cordon one", "cordon two", "delete web"]);
});

test("deletes pods that appear late; leaves pods that do not terminate in time to the cleanup, and reports them", async () => {
  const t = start([
    { name: "web", node: "one", endsAfter: 10_000 },
    { name: "stuck", node: "one" },
  ]);
  t.clock.after(4_000, () => void t.pods.push({ name: "late", node: "one", endsAfter: 1_000 }));
  assert.deepEqual(await t.run({ nodes: ["one"] }), []);
  assert.ok(t.done.includes("delete late"));
  assert.ok(
    t.said.includes(
      "node one: pods have not terminated within 1m0s; leaving them to the target's cleanup: default/stuck",
    ),
  );
  assert.equal(t.done.at(-1), "forget stuck");
});

test("waits only briefly for the pods of a node without a running graftlet", async () => {
  const t = start([{ name: "web", node: "one" }]);
  t.nodes.set("one", "Unknown");
  assert.deepEqual(await t.run({ nodes: ["one"] }), []);
  assert.ok(
    t.said.some((line) =>
      line.startsWith("node one: no agent is running there to terminate pods (node one is not Ready)"),
    ),
  );
  assert.ok(t.clock.monotonic() < 10_000, String(t.clock.monotonic()));

  const unready = start([{ name: "web", node: "one" }]);
  unready.nodes.set("one", "False");
  assert.deepEqual(await unready.run({ nodes: ["one"] }), []);
  assert.ok(unready.clock.monotonic() >= 30_000 && unready.clock.monotonic() < 45_000);
});

test("retries cleaning a target until graftlet has released it", async () => {
  const t = start([]);
  let tries = 0;
  t.cleaning.set("one", async () => {
    if (++tries < 5) throw new TargetError("RuntimeInUse", "failed_precondition", "in use by another graftlet");
    return true;
  });
  assert.deepEqual(await t.run({ nodes: ["one"], deployment: undefined }), []);
  assert.equal(tries, 5);
  assert.deepEqual(
    t.said.filter((line) => line.includes("in use")),
    ["node one: in use by another graftlet; stop this node's graftlet now; waiting for up to 1m0s"],
  );
  assert.deepEqual(t.done, ["cordon one", "clean one", "delete node one"]);
});

test("reports an unreachable target and keeps its Node, but removes the other node", async () => {
  const t = start([{ name: "web", node: "one", endsAfter: 1_000 }]);
  t.cleaning.set("one", async () => {
    throw new CodedError("unavailable", "edge-1:22: no route to host");
  });
  t.cleaning.set("two", async () => true);
  assert.deepEqual(await t.run(), ["one"]);
  assert.ok(t.said.includes("node one: edge-1:22: no route to host"));
  assert.ok(
    t.said.includes(
      "cannot remove node one: its target is not clean (see above); keeping its Node object, as its pods may still be running",
    ),
  );
  assert.deepEqual([...t.nodes.keys()], ["one"]);
  assert.ok(t.done.includes("delete node two"));
});

test("does not clean a node whose pods cannot be deleted, and does not stop graftlet if this fails on all nodes", async () => {
  const t = start([]);
  t.fail.set("patch /api/v1/nodes/one", forbidden);
  assert.deepEqual(await t.run(), ["one"]);
  assert.deepEqual(t.done, ["cordon two", "scale to 0", "clean two", "delete node two"]);

  const none = start([]);
  none.fail.set("list /api/v1/pods", forbidden);
  assert.deepEqual(await none.run(), ["one", "two"]);
  assert.deepEqual(none.done, ["cordon one", "cordon two"]);
  assert.ok(none.said.includes("cannot remove node one: nodes is forbidden; use an account with this permission"));
});

test("if graftlet cannot be stopped, no target is cleaned", async () => {
  const t = start([]);
  t.fail.set("patch /apis/apps/v1/namespaces/edge/deployments/graftlet/scale", forbidden);
  assert.deepEqual(await t.run(), ["one", "two"]);
  assert.deepEqual(t.done, ["cordon one", "cordon two"]);
});

test("reports a graftlet Pod that does not terminate, and still tries to clean the targets", async () => {
  const t = start([{ name: "lost", node: "other", labels: "app=graftlet" }]);
  assert.deepEqual(await t.run(), []);
  assert.ok(
    t.said.includes("scaled Deployment edge/graftlet to 0, but after 1m0s Pods remain: lost"),
    t.said.join("\n"),
  );
});

test("if a run is interrupted at any step, a second run completes the removal", async () => {
  const make = () =>
    start([
      { name: "web", node: "one", endsAfter: 1_000 },
      { name: "agent-of-all", node: "two", owner: "DaemonSet" },
    ]);
  const whole = make();
  await whole.run();
  const steps = whole.life.steps;
  assert.ok(steps > 15, String(steps));
  for (let last = 1; last < steps; last++)
    for (const answerIsLost of [false, true]) {
      const t = make();
      Object.assign(t.life, { endsAt: last, answerIsLost });
      await t.run().catch(() => undefined);
      assert.ok(t.nodes.size > 0 || t.pods.length > 0 || answerIsLost);
      t.life.endsAt = Infinity;
      assert.deepEqual(await t.run(), [], `after step ${last}`);
      assert.deepEqual([[...t.nodes.keys()], t.pods.map(({ name }) => name)], [[], []], `after step ${last}`);
    }
});

test("waits through a short outage of the API server, but not a long one", async () => {
  const t = start([]);
  const away = () => new CodedError("unavailable", "https://api:6443: connection refused");
  t.fail.set("list /api/v1/pods", away);
  t.clock.after(20_000, () => t.fail.clear());
  assert.deepEqual(await t.run({ nodes: ["one"] }), []);
  assert.deepEqual(
    t.said.filter((line) => line.startsWith("the API server")),
    ["the API server does not answer; retrying: https://api:6443: connection refused"],
  );

  const gone = start([]);
  gone.fail.set("list /api/v1/pods", away);
  assert.deepEqual(await gone.run({ nodes: ["one"] }), ["one"]);
  assert.ok(gone.said.includes("cannot remove node one: https://api:6443: connection refused"));
});

test("treats missing Nodes and Deployments as already removed", async () => {
  const t = start([], { deployment: false });
  t.nodes.clear();
  assert.deepEqual(await t.run(), []);
  assert.ok(t.said.includes("Deployment edge/graftlet no longer exists"));
  assert.ok(t.said.includes("node one: not found in the cluster"));
});
