import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { podOf, preparerIn } from "./preparer.ts";

test("a container gets its devices' additions; its own variables and the agent's annotations take precedence", async (t) => {
  const root = await mkdtemp(join(tmpdir(), "graftlet-devices-"));
  t.after(() => rm(root, { recursive: true }));
  const devices = {
    environment: new Map([
      ["GPU", "0"],
      ["MODE", "device"],
    ]),
    mounts: [{ containerPath: "/lib/gpu", hostPath: "/opt/gpu", readOnly: true }],
    devices: [{ containerPath: "/dev/gpu", hostPath: "/dev/null", permissions: "rw" }],
    annotations: { "vendor.com/gpu": "yes", "io.kubernetes.container.hash": "theirs" },
    cdiDevices: ["vendor.com/gpu=0"],
  };
  const { configure } = preparerIn(root, { managers: [{ prepareContainer: async () => devices }] });
  const config = await configure(
    ...podOf({
      args: ["$(GPU)"],
      env: [{ name: "MODE", value: "own" }],
      volumeMounts: [{ name: "data", mountPath: "/data" }],
    }),
  );
  const env = config.envs.map(({ key, value }) => `${key}=${value.toString()}`);
  assert.deepEqual(
    env.filter((line) => /^(GPU|MODE)=/.test(line)),
    ["GPU=0", "MODE=own"],
  );
  assert.deepEqual(config.args, ["0"]);
  assert.deepEqual(
    config.mounts.slice(0, 2).map(({ hostPath, containerPath, readonly }) => [hostPath, containerPath, readonly]),
    [
      ["/opt/gpu", "/lib/gpu", true],
      ["/vol/data", "/data", false],
    ],
  );
  assert.deepEqual(config.devices, devices.devices);
  assert.deepEqual(config.CDIDevices, [{ name: "vendor.com/gpu=0" }]);
  assert.equal(config.annotations["vendor.com/gpu"], "yes");
  assert.equal(config.annotations["io.kubernetes.container.hash"], "ad819b5c");
});
