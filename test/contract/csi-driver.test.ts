import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { must } from "../harness/processes.ts";
import { callAt, type CsiRig, decode, type Running, startCsiRig } from "./csi-rig.ts";

// The project's own CSI driver and registrar, which storage is tested with: what Kubernetes' tests take for granted of them.

let shared: CsiRig | undefined;
before(async () => {
  shared = await startCsiRig();
});
after(async () => shared?.[Symbol.asyncDispose]());

function rig(): CsiRig {
  assert.ok(shared, "the programs could not be built");
  return shared;
}

const at = (name: string) => join(rig().folder, name);

/** Starts the driver with a folder of that name. */
function startDriver(name: string, flags: readonly string[] = []): Promise<Running> {
  mkdirSync(at(name), { recursive: true });
  const endpoint = `--endpoint=unix://${at(`${name}/csi.sock`)}`;
  const own = [endpoint, "--nodeid=node-1", `--statedir=${at(`${name}/data`)}`, "--v=5"];
  return rig().start("hostpathplugin", [...own, ...flags]);
}

/** Setups of the driver, and how the suite is told of them. */
const setups: Readonly<Record<string, { readonly driver?: readonly string[]; readonly suite?: readonly string[] }>> = {
  folders: {},
  devices: { driver: ["--check-volume-lifecycle"], suite: ["--csi.testvolumeaccesstype=block"] },
  attached: {
    driver: [
      "--enable-attach",
      "--attach-limit=3",
      "--check-volume-lifecycle",
      "--enable-controller-modify-volume",
      "--accepted-mutable-parameter-names=e2eVacTest",
    ],
    suite: ["--csi.testnodevolumeattachlimit"],
  },
  unstaged: { driver: ["--enable-stage=false", "--enable-topology=false", "--disable-node-expansion"] },
};

describe("csi-test's sanity suite", () => {
  for (const [name, { driver = [], suite = [] }] of Object.entries(setups))
    test(`csi-test's sanity suite passes with the driver's setup "${name}"`, async () => {
      await using running = await startDriver(name, driver);
      writeFileSync(at(`${name}/parameters`), "e2eVacTest: some\n");
      const argv = [
        `--csi.endpoint=unix://${at(`${name}/csi.sock`)}`,
        `--csi.mountdir=${at(`${name}/mount`)}`,
        `--csi.stagingdir=${at(`${name}/stage`)}`,
        `--csi.testvolumemutableparameters=${at(`${name}/parameters`)}`,
        "--ginkgo.no-color",
        ...suite,
      ];
      let { code, stdout } = await rig().run("csi-sanity", argv);
      // The suite waits for a change of its connection's state, and misses the one that comes before it looks (its utils/grpcutil.go).
      if (stdout.includes('s: "Connection timed out"')) ({ code, stdout } = await rig().run("csi-sanity", argv));
      assert.equal(code, 0, `${stdout}\n${running.log()}`);
      const passed = /SUCCESS! -- (\d+) Passed \| 0 Failed/.exec(stdout)?.[1];
      assert.ok(Number(passed) > 50, stdout.slice(-2000));
      assert.deepEqual(readdirSync(at(`${name}/data`)), ["state.json"], "no volume and no snapshot is left");
      assert.doesNotMatch(await must(["losetup", "--all"]), new RegExp(rig().folder), "no loop device is left");
    });
});

/** A capability of folders, with one writer. */
const writable = [
  [2, []],
  [3, [[1, 1]]],
] as const;

async function createVolume(socket: string, name: string): Promise<string> {
  const answer = await callAt(socket, "/csi.v1.Controller/CreateVolume", [
    [1, name],
    [3, writable],
  ]);
  return String(decode(decode(answer).get(1) ?? Buffer.of()).get(2));
}

test("keeps volumes and their mounts when the driver is killed", async () => {
  const socket = at("killed/csi.sock");
  const first = await startDriver("killed");
  const id = await createVolume(socket, "kept");
  const staging = at("killed/staging");
  const target = at("killed/target");
  const stage = () =>
    callAt(socket, "/csi.v1.Node/NodeStageVolume", [
      [1, id],
      [3, staging],
      [4, writable],
    ]);
  const publish = () =>
    callAt(socket, "/csi.v1.Node/NodePublishVolume", [
      [1, id],
      [3, staging],
      [4, target],
      [5, writable],
    ]);
  await assert.rejects(publish(), { code: status.FAILED_PRECONDITION });
  await stage();
  await publish();
  await first.end("SIGKILL");
  await using second = await startDriver("killed");
  assert.equal(await createVolume(socket, "kept"), id);
  await stage();
  await publish();
  await callAt(socket, "/csi.v1.Node/NodeUnpublishVolume", [
    [1, id],
    [2, target],
  ]);
  await callAt(socket, "/csi.v1.Node/NodeUnpublishVolume", [
    [1, id],
    [2, target],
  ]);
  await callAt(socket, "/csi.v1.Node/NodeUnstageVolume", [
    [1, id],
    [2, staging],
  ]);
  await callAt(socket, "/csi.v1.Controller/DeleteVolume", [[1, id]]);
  assert.equal(existsSync(target), false);
  assert.deepEqual(readdirSync(at("killed/data")), ["state.json"]);
  assert.match(second.log(), /gRPCCall: {"Method":"\/csi\.v1\.Node\/NodePublishVolume","Request":{"volume_id":/);
});

test("creates an inline volume at NodePublishVolume and deletes it at NodeUnpublishVolume", async () => {
  const socket = at("inline/csi.sock");
  await using _ = await startDriver("inline", ["--enable-volume-mount-group"]);
  const target = at("inline/target");
  const context = [
    [1, "csi.storage.k8s.io/ephemeral"],
    [2, "true"],
  ] as const;
  const grouped = [
    [2, [[3, "4321"]]],
    [3, [[1, 1]]],
  ] as const;
  const request = [
    [1, "csi-1"],
    [4, target],
    [5, grouped],
    [8, context],
  ] as const;
  await callAt(socket, "/csi.v1.Node/NodePublishVolume", request);
  await callAt(socket, "/csi.v1.Node/NodePublishVolume", request);
  const volume = at("inline/data/csi-1");
  assert.match(await must(["stat", "-c", "%g %A", volume]), /^4321 drwxrwsrwx/);
  const unpublish = () =>
    callAt(socket, "/csi.v1.Node/NodeUnpublishVolume", [
      [1, "csi-1"],
      [2, target],
    ]);
  await unpublish();
  await unpublish();
  assert.deepEqual([existsSync(target), existsSync(volume)], [false, false]);
});

const connected = (path: string) =>
  new Promise<Socket>((resolve, reject) => {
    const socket = connect(path, () => resolve(socket));
    socket.once("error", reject);
  });

test("a driver that runs as a proxy joins pairs of connections, whichever side connects first", async () => {
  const [clients, drivers] = [at("proxy-clients.sock"), at("proxy-drivers.sock")];
  const args = ["--nodeid=node-1", `--endpoint=${clients}`, `--proxy-endpoint=unix://${drivers}`];
  await using _ = await rig().start("hostpathplugin", args);
  const waiting = [await connected(drivers), await connected(drivers)];
  for (const driver of waiting) {
    const client = await connected(clients);
    client.end("asked");
    assert.equal(await text(driver), "asked");
    driver.destroy();
  }
  const client = await connected(clients);
  const driver = await connected(drivers);
  driver.end("said");
  assert.equal(await text(client), "said");
  client.destroy();
});

describe("the registrar of the CSI driver", () => {
  const registration = "/pluginregistration.Registration";
  /** Starts it for the driver of that folder. */
  const startRegistrar = (name: string) =>
    rig().start("csi-node-driver-registrar", [
      `--csi-address=${at(`${name}/csi.sock`)}`,
      `--kubelet-registration-path=${at(`${name}/csi.sock`)}`,
      `--plugin-registration-path=${at(name)}`,
    ]);

  test("the registrar announces the driver, and removes its socket on exit", async () => {
    await using _ = await startDriver("registered");
    const socket = at("registered/hostpath.csi.k8s.io-reg.sock");
    const probe = ["--mode=kubelet-registration-probe", `--kubelet-registration-path=${at("registered/csi.sock")}`];
    const registrar = await startRegistrar("registered");
    assert.equal((await rig().run("csi-node-driver-registrar", probe)).code, 1);
    const said = decode(await callAt(socket, `${registration}/GetInfo`));
    assert.deepEqual(
      [1, 2, 3, 4].map((number) => String(said.get(number))),
      ["CSIPlugin", "hostpath.csi.k8s.io", at("registered/csi.sock"), "1.0.0"],
    );
    assert.equal((await rig().run("csi-node-driver-registrar", probe)).code, 0);
    await callAt(socket, `${registration}/NotifyRegistrationStatus`, [[1, 1]]);
    assert.equal(await registrar.end("SIGTERM"), 0, registrar.log());
    assert.equal(existsSync(socket), false);
  });

  test("the registrar exits if the kubelet rejects the driver, and replaces a stale socket", async () => {
    await using _ = await startDriver("refused");
    const socket = at("refused/hostpath.csi.k8s.io-reg.sock");
    const first = await startRegistrar("refused");
    await assert.rejects(callAt(socket, `${registration}/NotifyRegistrationStatus`, [[2, "no such node"]]));
    assert.equal(await first.ended, 1);
    assert.match(first.log(), /Registration process failed with error: no such node/);
    await using second = await startRegistrar("refused");
    await callAt(socket, `${registration}/GetInfo`);
    assert.match(readFileSync("/proc/net/unix", "utf8"), new RegExp(socket), second.log());
  });
});
