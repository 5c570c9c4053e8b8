import assert from "node:assert/strict";
import { test } from "node:test";
import { LinkError, type LinkState } from "../../../../providers/ssh/connection/link-state.ts";
import { criConfigOf, dockerConfigOf, networkOf, createTargetLink } from "../../../../providers/ssh/provider.ts";

test("shares the target's runtime unless cri.sharing is exclusive", () => {
  assert.equal(criConfigOf({ cri: undefined }).sharing, "shared");
  assert.equal(criConfigOf({ cri: {} }).sharing, "shared");
  assert.equal(criConfigOf({ cri: { sharing: "exclusive" } }).sharing, "exclusive");
});

test("rejects sockets in cri and docker, and values that are not maps", () => {
  const invalid = (message: RegExp) => ({ code: "invalid_argument", message });
  const elsewhere = /set the socket in providerConfig\.runtime instead\.$/;
  assert.throws(() => criConfigOf({ cri: { endpoint: "unix:///run/x.sock" } }), invalid(elsewhere));
  assert.throws(() => dockerConfigOf({ docker: { socket: "unix:///run/x.sock" } }, "n"), invalid(elsewhere));
  assert.throws(() => criConfigOf({ cri: "containerd" }), invalid(/is not a map of fields/));
  assert.throws(() => dockerConfigOf({ docker: ["x"] }, "n"), invalid(/is not a map of fields/));
});

test("counts each lost connection, even while others are up, but not new connections", () => {
  let state: LinkState = { kind: "connecting", since: 0 };
  const listeners: ((state: LinkState) => void)[] = [];
  const trouble = createTargetLink({
    state: () => state,
    onChange: (listener) => (listeners.push(listener), () => {}),
  });
  const become = (next: LinkState): number => {
    state = next;
    for (const listener of listeners) listener(state);
    return trouble.losses();
  };
  const up = (connections: number): LinkState => ({ kind: "up", since: 0, connections });
  const why = new LinkError("LinkDown", "unavailable", "gone");
  const counted = [up(1), up(2), up(1), { kind: "down", since: 0, why, nextTryAt: 0 } as const, up(1)].map(become);
  assert.deepEqual(counted, [0, 0, 1, 2, 2]);
});

test("derives the pod network from the configuration", () => {
  assert.deepEqual(networkOf({ network: "isolated" }), { isolated: true });
  assert.deepEqual(networkOf({ network: "auto" }), { isolated: true, auto: true });
  const kubernetesService = { host: "api.example", port: 6443 };
  assert.deepEqual(networkOf({ network: "routed", kubernetesService }), { isolated: false, kubernetesService });
});
