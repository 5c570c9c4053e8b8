import assert from "node:assert/strict";
import { test } from "node:test";
import { type ContainerAdditions, joinAdditions } from "../../../src/resource-manager.ts";

const additions = (more: Partial<ContainerAdditions>): ContainerAdditions => ({
  environment: new Map(),
  mounts: [],
  devices: [],
  annotations: {},
  cdiDevices: [],
  ...more,
});

test("joins the additions of several managers; of variables or annotations with the same name, the first takes precedence", () => {
  const joined = joinAdditions([
    undefined,
    additions({ environment: new Map([["A", "1"]]), annotations: { a: "1" }, cdiDevices: ["v/c=0"] }),
    additions({
      environment: new Map([
        ["A", "2"],
        ["B", "2"],
      ]),
      annotations: { a: "2", b: "2" },
      cdiDevices: ["v/c=0", "v/c=1"],
      mounts: [{ containerPath: "/m", hostPath: "/h", readOnly: true }],
    }),
  ]);
  assert.deepEqual(Object.fromEntries(joined?.environment ?? []), { A: "1", B: "2" });
  assert.deepEqual(joined?.annotations, { a: "1", b: "2" });
  assert.deepEqual(joined?.cdiDevices, ["v/c=0", "v/c=1"]);
  assert.equal(joined?.mounts.length, 1);
});

test("adds nothing to a container without additions", () => {
  assert.equal(joinAdditions([undefined, undefined]), undefined);
});
