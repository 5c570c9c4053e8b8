import assert from "node:assert/strict";
import { test } from "node:test";
import {
  NodeGetVolumeStatsResponse,
  NodeServiceCapability_RPC_Type as Capability,
  type NodeGetVolumeStatsRequest,
  VolumeUsage_Unit as Unit,
} from "../../../src/gen/csi.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { createDriverVolumeStats } from "../../../src/stats/driver-volume-stats.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";

const unasked = async () => assert.fail("unexpected call");
const volume = { driver: "d", volumeHandle: "h" };

/** A driver that returns these responses in order. */
function rig(...answers: readonly (object | Error)[]) {
  return rigWith(undefined, ...answers);
}

/** @param capabilities of the driver, if volume health is queried. */
function rigWith(capabilities: readonly Capability[] | undefined, ...answers: readonly (object | Error)[]) {
  const clock = fakeClock();
  const said: string[] = [];
  const measured: string[] = [];
  const asked: NodeGetVolumeStatsRequest[] = [];
  const left = [...answers];
  const host = fakeHost({ clock });
  const space = createDriverVolumeStats({
    measures: { statsRead: (source) => void measured.push(source) },
    host,
    drivers: {
      driver: () => ({
        capabilities: capabilities ? async () => new Set(capabilities) : unasked,
        stage: unasked,
        unstage: unasked,
        publish: unasked,
        unpublish: unasked,
        expand: unasked,
        async stats(request) {
          asked.push(request);
          const answer = left.shift();
          if (answer instanceof Error) throw answer;
          return NodeGetVolumeStatsResponse.fromPartial(answer ?? {});
        },
      }),
    },
    queryHealth: capabilities !== undefined,
    clock,
    log: createLogger(0, { write: (line: string) => void said.push(line) }),
  });
  return { clock, host, said, asked, space, measured };
}

test("reads a driver's volume stats once a minute", async () => {
  const usage = [
    { unit: Unit.BYTES, total: 10n, available: 7n, used: 2n },
    { unit: Unit.INODES, total: 5n, available: 4n, used: 1n },
    { unit: Unit.UNKNOWN, total: 99n },
  ];
  const { clock, asked, space } = rig({ usage }, { usage: usage.slice(0, 1) });
  const figures = { capacityBytes: 10, availableBytes: 7, usedBytes: 2, inodes: 5, inodesFree: 4, inodesUsed: 1 };
  const first = await space("/v", volume);
  assert.deepEqual(first, { ...figures, device: "", at: clock.now() });
  await clock.advance(59_000);
  assert.equal(await space("/v", volume), first);
  await clock.advance(1_000);
  const without = { inodes: 0, inodesFree: 0, inodesUsed: 0 };
  assert.deepEqual(await space("/v", volume), { ...figures, ...without, device: "", at: clock.now() });
  assert.deepEqual(
    asked.map(({ volumeId, volumePath }) => [volumeId, volumePath]),
    [
      ["h", "/v"],
      ["h", "/v"],
    ],
  );
});

test("reports no capacity for a driver that fails or returns none, but still reports that of other drivers", async () => {
  const { said, space } = rig(new CodedError("unavailable", "away"), {});
  assert.deepEqual(await Promise.all(["/a", "/b"].map((path) => space(path, volume))), [undefined, undefined]);
  assert.match(said.join(""), /did not report the usage of a volume/);
});

test("measures a remote file system with a command: 5 s timeout, at most once a minute", async () => {
  const { clock, host, said, space, measured } = rig();
  host.program("stat", (_args, { stdout }) => {
    stdout.write("4096 100 70 60 50 40\n");
    return 0;
  });
  const figures = { capacityBytes: 409_600, availableBytes: 245_760, usedBytes: 122_880 };
  const inodes = { inodes: 50, inodesFree: 40, inodesUsed: 10 };
  assert.deepEqual(await space("/v", "remote"), { ...figures, ...inodes, device: "", at: clock.now() });
  assert.deepEqual(host.commands, [["stat", "-f", "-c", "%S %b %f %a %c %d", "/v"]]);
  host.program("stat", (_args, { killed }) =>
    clock.sleep(1_000_000, killed).then(
      () => 0,
      () => 137,
    ),
  );
  const asked = space("/gone", "remote");
  await clock.advance(5_000);
  assert.equal(await asked, undefined);
  assert.equal(await space("/gone", "remote"), undefined);
  assert.equal(host.commands.length, 2);
  assert.equal(said.length, 1);
  assert.deepEqual(measured, ["statfs", "statfs"]);
});

test("queries the driver for a block volume if the node has its device", async () => {
  const { asked, space } = rig({ usage: [{ unit: Unit.BYTES, total: 10n }] });
  assert.equal((await space("/link", { ...volume, at: "/device" }))?.capacityBytes, 10);
  assert.deepEqual(
    asked.map(({ volumePath }) => volumePath),
    ["/device"],
  );
});

test("reads only the size of a device without a driver, once a minute", async () => {
  const { clock, host, space } = rig();
  host.program("blockdev", (_args, { stdout }) => {
    stdout.write("16777216\n");
    return 0;
  });
  const nothing = { availableBytes: 0, usedBytes: 0, inodes: 0, inodesFree: 0, inodesUsed: 0 };
  const figures = { capacityBytes: 16_777_216, ...nothing, device: "", at: clock.now() };
  assert.deepEqual(await space("/link", "device"), figures);
  assert.deepEqual(await space("/link", "device"), figures);
  assert.deepEqual(host.commands, [["blockdev", "--getsize64", "/link"]]);
  host.program("blockdev", () => 1);
  assert.equal(await space("/gone", "device"), undefined);
});

test("reports volume health from drivers that support it, even without usage", async () => {
  const answer = { volumeCondition: { abnormal: true, message: "worn out" } };
  const able = rigWith([Capability.GET_VOLUME_STATS, Capability.VOLUME_CONDITION], answer, {});
  assert.deepEqual((await able.space("/a", volume))?.condition, answer.volumeCondition);
  assert.deepEqual((await able.space("/b", volume))?.condition, { abnormal: false, message: "" });
  assert.equal(await rigWith([Capability.GET_VOLUME_STATS], answer).space("/a", volume), undefined);
});
