import assert from "node:assert/strict";
import { test } from "node:test";
import { criConfigOf, dockerConfigOf } from "../../../../providers/ssh/provider.ts";

test("a target's runtime is shared unless the settings say that it is the node's alone", () => {
  assert.equal(criConfigOf({ cri: undefined }).sharing, "shared");
  assert.equal(criConfigOf({ cri: {} }).sharing, "shared");
  assert.equal(criConfigOf({ cri: { sharing: "exclusive" } }).sharing, "exclusive");
});

test("sockets are named in one place, and what is no map of fields is refused", () => {
  const invalid = (message: RegExp) => ({ code: "invalid_argument", message });
  const elsewhere = /name its socket in providerConfig\.runtime instead\.$/;
  assert.throws(() => criConfigOf({ cri: { endpoint: "unix:///run/x.sock" } }), invalid(elsewhere));
  assert.throws(() => dockerConfigOf({ docker: { socket: "unix:///run/x.sock" } }, "n"), invalid(elsewhere));
  assert.throws(() => criConfigOf({ cri: "containerd" }), invalid(/is not a map of fields/));
  assert.throws(() => dockerConfigOf({ docker: ["x"] }, "n"), invalid(/is not a map of fields/));
});
