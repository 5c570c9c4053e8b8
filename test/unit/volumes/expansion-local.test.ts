import assert from "node:assert/strict";
import { test } from "node:test";
import { bound, grow, started } from "./expansion-bench.ts";
import { directoryOf } from "./volume-bench.ts";

test("expands a local volume's file system with the tool for its type", async () => {
  for (const [type, command] of [
    ["ext4", "resize2fs /dev/one"],
    ["xfs", `xfs_growfs -d ${directoryOf("local-volume", "pv")}`],
    ["btrfs", `btrfs filesystem resize max ${directoryOf("local-volume", "pv")}`],
  ] as const) {
    const bench = bound({ csi: undefined, local: { path: "/dev/one", fsType: type } });
    const { host } = bench;
    host.files.put("/dev/one", { kind: "blockDevice" });
    host.program("blkid", (_args, { stdout }) => {
      stdout.write(`TYPE=${type}\n`);
      return 0;
    });
    const [program = ""] = command.split(" ");
    host.program(program, () => 0);
    const { pass } = await started(bench);
    grow(bench, {});
    await pass();
    assert.ok(
      host.commands.some((argv) => argv.join(" ") === command),
      command,
    );
    assert.deepEqual(bench.patches, [{ metadata: { resourceVersion: "7" }, status: { capacity: { storage: "2Gi" } } }]);
  }
});

test("reports why a local volume's file system cannot be expanded", async () => {
  const bench = bound({ csi: undefined, local: { path: "/dev/one" } });
  const { host } = bench;
  host.files.put("/dev/one", { kind: "blockDevice" });
  host.program("blkid", (_args, { stdout }) => {
    stdout.write("TYPE=ext4\n");
    return 0;
  });
  host.program("resize2fs", (_args, { stderr }) => {
    stderr.write("bad magic");
    return 1;
  });
  const { pass } = await started(bench);
  grow(bench, {});
  await pass();
  assert.deepEqual(bench.events, [
    'Pod Warning VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume "pv" : resize of device /dev/one failed: exit status 1. resize2fs output: bad magic',
  ]);
});
