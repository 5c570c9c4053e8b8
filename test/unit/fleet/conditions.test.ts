import assert from "node:assert/strict";
import { test } from "node:test";
import { conditionsOf, type MemberState } from "../../../src/fleet/conditions.ts";
import { TargetError } from "../../../src/seams/provider.ts";

const at = { generation: 3, now: "2026-01-02T00:00:00Z" };
const node = (status: string, reason = "KubeletReady") => ({
  metadata: { name: "edge-1" },
  status: { conditions: [{ type: "Ready", status, reason, message: `is ${status}` }] },
});
const served: MemberState = {
  staticIn: undefined,
  refused: undefined,
  stopped: undefined,
  progress: { isIdentified: true, isClaimed: true, trouble: undefined },
  link: { trouble: () => undefined },
  node: node("True"),
};
const shown = (state: MemberState) =>
  conditionsOf(state, [], at).map(({ type, status, reason }) => `${type} ${status} ${reason}`);
const readyOf = (state: MemberState) => conditionsOf(state, [], at).find(({ type }) => type === "Ready");

test("all conditions of a Ready node are True, and listed in the order in which a machine becomes a node", () => {
  assert.deepEqual(shown(served), [
    "Accepted True Valid",
    "Identified True CertificateIssued",
    "Linked True Connected",
    "Claimed True Locked",
    "Registered True NodeRegistered",
    "Ready True NodeReady",
  ]);
});

test("a node from a release's configuration is Accepted with the reason Static", () => {
  const [accepted] = conditionsOf({ ...served, staticIn: "edge" }, [], at);
  assert.deepEqual(
    [accepted?.type, accepted?.status, accepted?.reason, accepted?.message],
    ["Accepted", "True", "Static", "the node is configured in the values of release edge, not in this object"],
  );
});

test("Ready has the reason and message of the first condition that is not True", () => {
  const trouble = new TargetError("LoginRefused", "permission_denied", "the key is refused");
  const start = { isIdentified: false, isClaimed: false, trouble: undefined };
  const refused = { reason: "LoginSecretMissing", message: "create it" };
  const fresh: MemberState = { ...served, progress: start, link: undefined, node: undefined };
  assert.deepEqual(shown({ ...fresh, refused }), [
    "Accepted False LoginSecretMissing",
    "Identified Unknown NotAccepted",
    "Linked Unknown NotConnected",
    "Claimed Unknown NotLocked",
    "Registered Unknown NotRegistered",
    "Ready False LoginSecretMissing",
  ]);
  assert.equal(readyOf(fresh)?.reason, "CertificatePending");
  assert.match(readyOf(fresh)?.message ?? "", /kubectl get certificatesigningrequests/);
  const linkless: MemberState = { ...fresh, progress: { ...start, isIdentified: true, trouble } };
  assert.deepEqual(readyOf(linkless)?.reason, "LoginRefused");
  assert.equal(readyOf({ ...served, link: { trouble: () => trouble } })?.message, "the key is refused");
  assert.equal(readyOf({ ...served, node: node("False", "KubeletNotReady") })?.reason, "KubeletNotReady");
  assert.equal(readyOf({ ...served, node: node("Unknown") })?.status, "Unknown");
});

test("a machine that is paused or leaving is not Ready, even if its Node is", () => {
  const stopped = { reason: "Paused", message: "paused" };
  assert.equal(readyOf({ ...served, stopped })?.reason, "Paused");
  assert.equal(readyOf({ ...served, stopped })?.status, "False");
});

test("a transition time changes only when the status changes", () => {
  const before = conditionsOf(served, [], { generation: 1, now: "2026-01-01T00:00:00Z" });
  const after = conditionsOf({ ...served, node: node("False", "KubeletNotReady") }, before, at);
  const times = after.map(({ lastTransitionTime }) => lastTransitionTime);
  assert.deepEqual(times, [...Array<string>(5).fill("2026-01-01T00:00:00Z"), "2026-01-02T00:00:00Z"]);
  assert.ok(after.every(({ observedGeneration }) => observedGeneration === 3));
});
