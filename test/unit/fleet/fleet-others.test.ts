import assert from "node:assert/strict";
import { test } from "node:test";
import { enrolmentSecretName, tokenData } from "../../../src/fleet/enrolment.ts";
import type { GraftedNode, GraftedNodeSpec } from "../../../src/fleet/grafted-node.ts";
import type { Lease } from "../../../src/objects.ts";
import type { EnrolmentHandler } from "../../../src/seams/enrolment.ts";
import type { Arrival, MachineListeners } from "../../../src/seams/machine-listeners.ts";
import { machine, namespace, start } from "./one-replica.ts";

/** A listener that records what is expected there. */
function fakeListeners() {
  const keys = new Map<string, string>();
  const changed = new Map<string, () => void>();
  const arrivals = new Map<string, Arrival>();
  let handler: EnrolmentHandler | undefined;
  const listeners: MachineListeners = {
    async open(_listener, opened) {
      handler = opened;
      return { [Symbol.asyncDispose]: async () => void (handler = undefined) };
    },
    expect(_listener, name, onChange) {
      changed.set(name, onChange);
      return {
        setKeys: (text) => void keys.set(name, text),
        arrival: () => arrivals.get(name),
        [Symbol.asyncDispose]: async () => void keys.delete(name),
      };
    },
    publicKeyOf: () => "",
  };
  const arrive = (name: string, at: number) => {
    arrivals.set(name, { at, isDoubtful: false });
    changed.get(name)?.();
  };
  return { listeners, keys, arrive, handler: () => handler };
}

/** Another replica that is alive, and what it owns. */
const otherLease: Lease = {
  metadata: { name: "graftlet-replica-graftlet-2", namespace, uid: "lease-2" },
  spec: { holderIdentity: "pod-2", renewTime: "2026-01-01T00:00:00.000000Z" },
};
const othersMachine = (name: string, ssh: GraftedNodeSpec["ssh"], linked: "True" | "False"): GraftedNode => ({
  ...machine(name, { ssh }),
  status: {
    owner: { replica: "graftlet-2", uid: "pod-2", epoch: 1, since: "" },
    observedEpoch: 1,
    conditions: [{ type: "Linked", status: linked, reason: "ReverseTunnelDown", message: "", lastTransitionTime: "" }],
  },
});

test("machines of another replica may connect here, and enrol here", async (t) => {
  const token = "0123456789abcdef0123456789abcdef";
  const data = tokenData(token, new Date(Date.UTC(2100, 0)), false);
  const secret = { metadata: { name: enrolmentSecretName("b"), namespace, uid: "s" }, data };
  const { listeners, keys, handler } = fakeListeners();
  const objects = [
    othersMachine("a", { reverse: { authorizedKeys: ["K"] } }, "True"),
    othersMachine("b", { reverse: {} }, "True"),
  ];
  const { did, until, stop, ended } = start(t, objects, [], { listeners, secrets: [secret], leases: [otherLease] });
  await until(() => keys.size > 0 && handler() !== undefined);
  assert.deepEqual([...keys], [["a", "K\n"]]);
  assert.equal(handler()?.isValid("b", token), true);
  assert.deepEqual(did, []);
  stop.abort();
  await ended;
  assert.deepEqual([keys.size, handler()], [0, undefined], "machines connect to other replicas now");
});

test("takes a machine that has connected here from an owner that has no connection", async (t) => {
  const { listeners, keys, arrive } = fakeListeners();
  const objects = [othersMachine("a", { reverse: { authorizedKeys: ["K"] } }, "False")];
  const { did, until, now } = start(t, objects, [], { listeners, secrets: [], leases: [otherLease] });
  await until(() => keys.has("a"));
  const began = now();
  arrive("a", began);
  await until(() => did.includes("start a 10251"));
  assert.ok(now() - began < 10_000, "its owner is alive");
});

test("observes the machines of another replica until it has taken them, and tells of each change", async (t) => {
  const { metadata, spec } = otherLease;
  const lease = { metadata: { ...metadata, labels: { "graftlet.dev/replica-of": "r" } }, spec };
  const objects = [machine("a"), othersMachine("b", { host: "machine" }, "True")];
  const { did, observed, send, until } = start(t, objects, [], { leases: [lease] });
  const told: string[] = [];
  const list = () => {
    const { replicas, machines } = observed.release.report();
    const owned = replicas.map(({ name, machines: count }) => `${name} ${count}`);
    return [...owned, ...machines.map(({ name, owner = "nobody" }) => `${name} by ${owner}`)].join();
  };
  observed.release.onChange(() => told.push(list()));
  const shared = "graftlet-1 1,graftlet-2 1,b by graftlet-2";
  await until(() => told.includes(shared));
  assert.equal(observed.release.report().replica, "graftlet-1");
  assert.deepEqual(did, ["start a 10251"]);
  send("DELETED", lease, "leases");
  await until(() => told.includes("graftlet-1 2"));
  assert.ok(told.includes("graftlet-1 1,b by nobody"), told.join("; "));
  assert.equal(list(), "graftlet-1 2");
});
