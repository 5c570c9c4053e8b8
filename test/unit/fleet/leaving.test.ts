import assert from "node:assert/strict";
import { test } from "node:test";
import type { GraftedNode, GraftedNodeSpec } from "../../../src/fleet/grafted-node.ts";
import { leaveCluster, type LeavingDeps } from "../../../src/fleet/leaving.ts";
import type { NodeConfig } from "../../../src/config/node-config.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { rfc3339 } from "../../../src/lib/rfc3339.ts";
import { fakeClock } from "../../fakes/clock.ts";

const config = { nodeName: "edge-1" } as NodeConfig;
const never = new AbortController().signal;

/** A machine whose object was deleted just now, and whose Node is there. */
function start({
  registered = true,
  cleaned = true,
  providerID = "",
}: {
  readonly providerID?: string;
  readonly registered?: boolean;
  readonly cleaned?: boolean;
} = {}) {
  const clock = fakeClock();
  const did: string[] = [];
  const deletedAt = clock.now();
  const get = async <T>(path: string): Promise<T> => {
    if (!registered) throw new CodedError("not_found", path);
    return { metadata: { name: "edge-1" }, spec: { providerID } } as T;
  };
  const deletes = (by: string) => async (path: string) => void did.push(`${by} deletes ${path}`);
  const nodeClient = {
    get,
    list: async () => ({ items: [] }),
    patch: async <T>(path: string): Promise<T> => {
      did.push(`node patches ${path}`);
      return {} as T;
    },
    delete: deletes("node"),
  };
  const deps: LeavingDeps = {
    clock,
    client: { get, delete: deletes("account") },
    withNodeClient: (_config, work) => work(nodeClient),
    clean: async (_config, { expectedMachine = "any machine" }) => {
      did.push(`clean ${expectedMachine}`);
      return cleaned;
    },
  };
  const object = (spec: Partial<GraftedNodeSpec> = {}, annotations: Record<string, string> = {}): GraftedNode => ({
    metadata: { name: "edge-1", namespace: "edge", uid: "1", deletionTimestamp: rfc3339(clock.now()), annotations },
    spec: { ssh: { host: "x" }, ...spec },
    ...(registered && { status: { machine: { machineID: "m" } } }),
  });
  const run = (of: GraftedNode, known: NodeConfig | undefined = config) =>
    leaveCluster(
      deps,
      {
        object: of,
        config: known,
        policy: of.spec.deletionPolicy ?? "Drain",
        since: deletedAt,
        isOther: ({ spec }) => spec?.providerID === "another's",
        stop: async () => void did.push("stop"),
        say: () => undefined,
      },
      never,
    );
  return { clock, did, object, run };
}

test("Drain terminates the pods, stops the node, cleans the machine, and then deletes the Node with graftlet's account", async () => {
  const { did, object, run } = start();
  assert.deepEqual(await run(object()), { left: true });
  assert.deepEqual(did, [
    "node patches /api/v1/nodes/edge-1",
    "stop",
    "clean m",
    "node patches /api/v1/nodes/edge-1/status",
    "account deletes /api/v1/nodes/edge-1",
  ]);
});

test("the Node and the object stay while the machine cannot be cleaned", async () => {
  const { did, object, run } = start({ cleaned: false });
  const result = await run(object());
  assert.equal(result.left, false);
  assert.ok(!did.some((what) => what.startsWith("account deletes")));
});

test("Release deletes only the Node, and Orphan deletes nothing", async () => {
  const released = start();
  assert.deepEqual(await released.run(released.object({ deletionPolicy: "Release" })), { left: true });
  assert.deepEqual(released.did, ["stop", "account deletes /api/v1/nodes/edge-1"]);
  const orphaned = start();
  assert.deepEqual(await orphaned.run(orphaned.object({ deletionPolicy: "Orphan" })), { left: true });
  assert.deepEqual(orphaned.did, ["stop"]);
});

test("after drainTimeout and terminationGracePeriod, deletes the Node without waiting any longer for the machine", async () => {
  const { clock, did, object, run } = start({ cleaned: false });
  const deleted = object({ drainTimeout: "1m", terminationGracePeriod: "10m" });
  await clock.advance(11 * 60_000 - 1);
  assert.equal((await run(deleted)).left, false);
  await clock.advance(1);
  did.length = 0;
  const result = await run(deleted);
  assert.equal(result.left, "dirty");
  assert.deepEqual(did, ["stop", "account deletes /api/v1/nodes/edge-1"]);
});

test("with the force annotation, does not wait for the machine, and reports the reason", async () => {
  const { did, object, run } = start();
  const result = await run(object({}, { "graftlet.dev/force-leave": "it burnt down" }));
  assert.deepEqual(result, {
    left: "dirty",
    message: "the Node is deleted, but its machine was not cleaned (forced: it burnt down)",
  });
  assert.ok(!did.includes("clean m"));
});

test("releases an object at once if it was never served, but waits if it can no longer be served", async () => {
  const never = start({ registered: false });
  assert.deepEqual(await never.run(never.object()), { left: true });
  assert.deepEqual(never.did, ["stop"]);
  const unserved = start();
  const result = await leaveUnserved(unserved);
  assert.deepEqual(result, {
    left: false,
    message: "the machine cannot be cleaned, because the object cannot be served",
  });
});

function leaveUnserved({ clock, object }: ReturnType<typeof start>) {
  const get = async <T>(): Promise<T> => ({}) as T;
  const deps: LeavingDeps = {
    clock,
    client: { get, delete: async () => undefined },
    withNodeClient: () => Promise.reject(new Error("unused")),
    clean: () => Promise.reject(new Error("unused")),
  };
  return leaveCluster(
    deps,
    {
      object: object(),
      config: undefined,
      policy: "Drain",
      since: clock.now(),
      isOther: () => false,
      stop: async () => {},
      say: () => {},
    },
    never,
  );
}

test("does not delete the Node of another object, or clean the machine, whatever the policy", async () => {
  for (const deletionPolicy of ["Drain", "Release"] as const) {
    const { did, object, run } = start({ providerID: "another's" });
    const message = "its machine was not cleaned, because Node edge-1 is another object's";
    assert.deepEqual(await run(object({ deletionPolicy })), { left: "dirty", message });
    assert.deepEqual(did, ["stop"]);
  }
});

test("deletes the Node of an object that was never served because its root directory is another's, and cleans nothing", async () => {
  const { did, object, run } = start();
  const claimed = {
    type: "Claimed",
    status: "False",
    reason: "RootDirTaken",
    message: "",
    lastTransitionTime: "",
  } as const;
  assert.deepEqual(await run({ ...object(), status: { conditions: [claimed] } }), { left: true });
  assert.deepEqual(did, ["stop", "account deletes /api/v1/nodes/edge-1"]);
});
