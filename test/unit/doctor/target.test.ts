import assert from "node:assert/strict";
import { test } from "node:test";
import { examineTarget } from "../../../src/doctor/target.ts";
import type { Target } from "../../../src/seams/provider.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { fakeLink } from "../../fakes/link.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";
import { never } from "../../fakes/signals.ts";

/** The finding about the disk of a root directory on such a file system. */
async function aboutDisk(fsType: string, isRemote: boolean) {
  const host = fakeHost({ clock: fakeClock() });
  host.files.mount("/", fsType);
  return await finding("disk", { host, ...(isRemote && { link: fakeLink() }) });
}

/** The finding of one check. */
async function finding(name: string, parts: Pick<Target, "host" | "link" | "network">) {
  const clock = fakeClock();
  const target: Target = {
    ...parts,
    runtime: fakeRuntime({ clock }),
    sharing: "shared",
    async [Symbol.asyncDispose]() {},
  };
  const kubelet = { failSwapOn: false, failCgroupV1: false, cgroupDriver: "cgroupfs", resolvConf: "/etc/resolv.conf" };
  const refuseOtherAgent = async () => {};
  const of = { target, nodeName: "nas", rootDir: "/var/lib/kubelet", kubelet, refuseOtherAgent, clock };
  const findings = await examineTarget(of, never);
  return findings.find(({ check }) => check === name);
}

test("warns about a root directory on a memory-backed file system of a remote machine, which a new node refuses", async () => {
  const found = await aboutDisk("rootfs", true);
  assert.deepEqual([found?.level, found?.reason], ["warning", "RootDirUnusable"]);
  assert.match(found?.message ?? "", /^\/var\/lib\/kubelet is in the machine's memory \(rootfs at \/\)/);
  assert.notEqual((await aboutDisk("ext4", true))?.reason, "RootDirUnusable");
  assert.notEqual((await aboutDisk("rootfs", false))?.reason, "RootDirUnusable");
});

test("names an active firewall of a machine whose pods reach Services over the link", async () => {
  const host = fakeHost({ clock: fakeClock() });
  let active = "";
  for (const name of ["true", "nft", "python3", "perl"]) host.program(name, async () => 0);
  host.program("sh", async (_args, { stdout }) => {
    stdout.write(active);
    return 0;
  });
  const found = () => finding("pods' network", { host, network: { isolated: false, tunneled: true } });
  assert.equal((await found())?.message, "tunneled, and the target meets the requirements");
  active = "ufw\n";
  assert.match((await found())?.message ?? "", /requirements; ufw is active: .*FirewallBlocksTunnel/);
});
