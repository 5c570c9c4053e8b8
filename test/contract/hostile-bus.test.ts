import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Variant } from "dbus-native";
import { connectBus } from "../../src/host/systemd/bus.ts";
import { connectLogind } from "../../src/host/systemd/logind.ts";
import { openBusStreams } from "../../src/host/systemd/systemd-client.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { never } from "../fakes/signals.ts";
import type { Answer } from "../harness/bus-service.ts";
import { waitFor } from "../harness/wait.ts";
import { type BusService, type SystemBusRig, systemBusRig } from "./bus-rig.ts";

const clock = systemClock();
const [logindName, systemdName] = ["org.freedesktop.login1", "org.freedesktop.systemd1"] as const;
const prepare = { path: "/org/freedesktop/login1", interface: `${logindName}.Manager`, member: "PrepareForShutdown" };
const removed = { path: "/org/freedesktop/systemd1", interface: `${systemdName}.Manager`, member: "JobRemoved" };
const job = "/org/freedesktop/systemd1/job/1";

describe("a system bus on which other users send messages", { timeout: 120_000 }, () => {
  let rig: SystemBusRig;
  let logind: BusService;
  let systemd: BusService;
  const asLogind = (): Answer => ({ signature: "v", body: [new Variant("b", true)] });

  before(async () => {
    rig = await systemBusRig(logindName, systemdName);
    logind = await rig.own(logindName, asLogind);
    systemd = await rig.own(systemdName, ({ member }) =>
      member === "Get" ? { signature: "v", body: [new Variant("s", "252")] } : {},
    );
  });
  after(async () => {
    await rig?.[Symbol.asyncDispose]();
  });

  /** Has the user nobody send a signal to all, and straight to each connection. */
  const spoof = (message: object) =>
    rig.asNobody(`
      [undefined, ...others].forEach((destination, n) =>
        connection.message({ type: 4, serial: 100 + n, ...(destination && { destination }), ...${JSON.stringify(message)} }));
      setTimeout(() => process.exit(0), 300);`);

  test("accepts a shutdown signal only from logind, and from its successor when the bus name changes owner", async () => {
    let heard = 0;
    const connection = await connectLogind({ host: rig.host, clock }, () => void (heard += 1), never);
    try {
      await spoof({ ...prepare, signature: "b", body: [true] });
      assert.equal(await connection.isShuttingDown(never), true, "still connected");
      assert.equal(heard, 0, "a signal of the user nobody");
      logind.signal({ ...prepare, signature: "b", body: [true] });
      await waitFor("logind to be heard", () => heard === 1);
      const former = logind;
      await former.release();
      logind = await rig.own(logindName, asLogind);
      former.signal({ ...prepare, signature: "b", body: [true] });
      assert.equal(await connection.isShuttingDown(never), true);
      assert.equal(heard, 1, "a signal of the former owner");
      logind.signal({ ...prepare, signature: "b", body: [true] });
      await waitFor("the successor to be heard", () => heard === 2);
    } finally {
      connection.close();
    }
  });

  test("accepts the end of a job only from systemd", async () => {
    const bus = await connectBus(await openBusStreams({ host: rig.host }, "socket", never), clock, never);
    try {
      const ends: string[] = [];
      bus.onJobEnd(({ result }) => void ends.push(result));
      await spoof({ ...removed, signature: "uoss", body: [1, job, "a.slice", "failed"] });
      await bus.call(
        { interfaceName: "org.freedesktop.DBus.Properties", member: "Get", signature: "ss", body: ["a", "b"] },
        never,
      );
      assert.deepEqual(ends, []);
      systemd.signal({ ...removed, signature: "uoss", body: [1, job, "a.slice", "done"] });
      await waitFor("the job's end", () => ends.length === 1);
      assert.deepEqual(ends, ["done"]);
    } finally {
      bus.close();
    }
  });

  test("skips a message of 8 MiB and 20,000 small ones without decoding them, and stays connected", async () => {
    const connection = await connectLogind({ host: rig.host, clock }, () => undefined, never);
    const begun = process.memoryUsage().heapUsed;
    let most = 0;
    const look = () => (most = Math.max(most, process.memoryUsage().heapUsed - begun));
    const timer = setInterval(look, 5);
    try {
      const message = { type: 4, ...prepare, signature: "aay" };
      // Empty arrays of bytes are zeros.
      await rig.asNobody(`
        const { marshall } = require("dbus-native/lib/message.js");
        const [destination] = others;
        const small = marshall({ ...${JSON.stringify(message)}, destination, serial: 9, body: [[]] });
        const large = Buffer.concat([small, Buffer.alloc(8 << 20)]);
        large.writeUInt32LE(4 + (8 << 20), 4);
        large.writeUInt32LE(8 << 20, small.length - 4);
        connection.stream.write(large);
        connection.stream.write(Buffer.concat(Array.from({ length: 20000 }, () => small)));
        connection.stream.end(() => setTimeout(() => process.exit(others.length === 1 ? 0 : 1), 500));`);
      assert.equal(await connection.isShuttingDown(never), true);
      look();
      assert.ok(most < 64 << 20, `the heap grew by ${most >> 20} MiB`);
    } finally {
      clearInterval(timer);
      connection.close();
    }
  });
});
