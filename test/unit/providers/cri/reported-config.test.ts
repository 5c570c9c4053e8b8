import assert from "node:assert/strict";
import { test } from "node:test";
import { runtimeConfig, readReportedConfig, unsupportedReason } from "../../../../providers/cri/reported-config.ts";
import {
  CgroupDriver,
  RuntimeServiceService as runtimeService,
  StatusResponse,
  VersionResponse,
} from "../../../../src/gen/cri.ts";
import { never } from "../../../fakes/signals.ts";
import { type SocketRig, socketRig } from "./server.ts";

const { status, version } = runtimeService;

/** A runtime without CRI's RuntimeConfig that reports this configuration in its verbose status. */
const showing = (rig: SocketRig, info: Readonly<Record<string, string>>) =>
  rig.serve((server) =>
    server.addService(
      { status },
      {
        status: (
          { request }: { readonly request: { readonly verbose: boolean } },
          reply: (error: null, value: StatusResponse) => void,
        ) => reply(null, StatusResponse.fromPartial(request.verbose ? { info } : {})),
      },
    ),
  );

/** A configuration whose default runtime is called `main`. */
const configured = (main: object, other: object = {}) => ({
  config: JSON.stringify({ containerd: { defaultRuntimeName: "main", runtimes: { other, main } } }),
});
const runc = (options: object | null) => ({ runtimeType: "io.containerd.runc.v2", options });

test("takes an older containerd's cgroup driver from its default runtime", async () => {
  for (const [main, driver] of [
    [runc({ SystemdCgroup: true }), CgroupDriver.SYSTEMD],
    [runc({ SystemdCgroup: false }), CgroupDriver.CGROUPFS],
    [runc({ BinaryName: "crun" }), CgroupDriver.CGROUPFS],
    [runc(null), CgroupDriver.CGROUPFS],
  ] as const) {
    await using rig = socketRig();
    await showing(rig, configured(main, runc({ SystemdCgroup: driver === CgroupDriver.CGROUPFS })));
    const { linux, isInferred } = await runtimeConfig(rig.channel, never);
    assert.deepEqual([linux?.cgroupDriver, isInferred], [driver, true], JSON.stringify(main));
  }
});

test("reports no cgroup driver for a runtime without a configuration, or with an unknown one", async () => {
  for (const info of [
    {},
    { config: "[crio]\ncgroup_manager = 1" },
    { config: "null" },
    { config: "{}" },
    configured({ runtimeType: "io.containerd.kata.v2", options: { SystemdCgroup: true } }),
  ]) {
    await using rig = socketRig();
    await showing(rig, info);
    await assert.rejects(runtimeConfig(rig.channel, never), { code: "unimplemented" }, JSON.stringify(info));
  }
});

test("a runtime's configuration is an object or undefined", async () => {
  await using rig = socketRig();
  await showing(rig, { config: '"text"' });
  assert.equal(await readReportedConfig(rig.channel, never), undefined);
});

test("reports a containerd that does not inject CDI devices; other runtimes inject them", async () => {
  for (const [info, expected] of [
    [configured(runc(null)), /^containerd injects no CDI devices: use containerd 2\.0/],
    [{ config: JSON.stringify({ enableCDI: false, cdiSpecDirs: [], containerd: {} }) }, /^containerd injects no CDI/],
    [{ config: JSON.stringify({ enableCDI: true, cdiSpecDirs: [], containerd: {} }) }, undefined],
    [{ config: JSON.stringify({ cdiSpecDirs: [], containerd: {} }) }, undefined],
    [{ config: "[crio]" }, undefined],
  ] as const) {
    await using rig = socketRig();
    await showing(rig, info);
    const reason = await unsupportedReason(rig.channel, "cdiDevices", never);
    if (expected) assert.match(reason ?? "", expected);
    else assert.equal(reason, undefined);
    assert.equal(await unsupportedReason(rig.channel, "memoryLimit", never), undefined);
  }
});

test("user namespaces need a handler that supports them", async () => {
  const able = { name: "runc", features: { userNamespaces: true } };
  const cases: readonly (readonly [{ name: string; features?: { userNamespaces: boolean } }[], RegExp | undefined])[] =
    [
      [[], /^no handler of the container runtime supports user namespaces: use containerd 2\.0/],
      [
        [{ name: "" }, { name: "runc", features: { userNamespaces: false } }],
        /^no handler .*, with runc 1\.2 or newer/,
      ],
      [[{ name: "" }, able], undefined],
    ];
  for (const [runtimeHandlers, expected] of cases) {
    await using rig = socketRig();
    await rig.serve((server) =>
      server.addService(
        { status },
        {
          status: (_: unknown, reply: (error: null, value: StatusResponse) => void) =>
            reply(null, StatusResponse.fromPartial({ runtimeHandlers })),
        },
      ),
    );
    const reason = await unsupportedReason(rig.channel, "userNamespace", never);
    if (expected) assert.match(reason ?? "", expected);
    else assert.equal(reason, undefined);
  }
});

test("containerd 2.1 does not support mounting part of an image volume; other runtimes support it or reject the container", async () => {
  for (const [runtimeName, runtimeVersion, expected] of [
    ["containerd", "2.1.9", /^containerd 2\.1\.9 mounts the whole image .* use containerd 2\.2 or newer$/],
    ["containerd", "v2.1.0-rc.1", /^containerd v2\.1\.0-rc\.1 mounts/],
    ["containerd", "2.2.1", undefined],
    ["containerd", "12.1.0", undefined],
    ["cri-o", "2.1.9", undefined],
  ] as const) {
    await using rig = socketRig();
    await rig.serve((server) =>
      server.addService(
        { version },
        {
          version: (_: unknown, reply: (error: null, value: VersionResponse) => void) =>
            reply(null, VersionResponse.fromPartial({ runtimeName, runtimeVersion })),
        },
      ),
    );
    const reason = await unsupportedReason(rig.channel, "imageSubPath", never);
    if (expected) assert.match(reason ?? "", expected);
    else assert.equal(reason, undefined);
  }
});
