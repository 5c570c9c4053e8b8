import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { criRuntime } from "../../providers/cri/runtime.ts";
import { localHost } from "../../providers/local/host.ts";
import { NodeGetCapabilitiesRequest, NodeService } from "../../src/gen/csi.ts";
import { unaryCallToSocket } from "../../src/host/grpc-session.ts";
import { smallLimits } from "../../src/lib/bounded-decode.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { limitInformationalAnswers } from "../../src/lib/informational-answers.ts";
import { silentLog } from "../../src/lib/log.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { never } from "../fakes/signals.ts";
import { type HostileSocket, startHostileSocket } from "../harness/hostile-socket.ts";
import { endure } from "./hostile.ts";

const clock = systemClock();
/** Timeout of calls: short where it is what ends them, and otherwise long enough for a busy machine. */
const [overdueMs, patientMs] = [700, 30_000];

function runtimeAt(socket: string, requestTimeoutMs = patientMs): Runtime {
  const host = localHost({ clock });
  return criRuntime({ runtimeSocket: socket, imageSocket: socket, requestTimeoutMs, host, clock, log: silentLog() });
}

const pluginCall = { method: NodeService.nodeGetCapabilities, request: NodeGetCapabilitiesRequest.create() };

/** A call to a plugin, each on a connection of its own. */
function askPlugin(path: string, limitMs: number): Promise<unknown> {
  const host = localHost({ clock });
  const limits = { limitMs, limits: smallLimits };
  return unaryCallToSocket({ host, clock }, { ...pluginCall, path, userAgent: "test", ...limits }, never);
}

/** What a server does, and the error of a call to it: of a runtime, and of a plugin where that is another. */
interface Case {
  readonly attack: string;
  readonly runtime: RegExp;
  readonly plugin?: RegExp;
}

const overdue = /Deadline exceeded|context deadline exceeded/;
const timeoutFor = (refused: RegExp) => (refused === overdue ? overdueMs : patientMs);
const lost = /error reading server preface|rpc error: code = Unavailable/;

const cases: readonly Case[] = [
  {
    attack: "empty entries",
    runtime: /a message of 16777216 bytes has too many entries/,
    plugin: /a message of 16777216 bytes is longer than 262144 bytes/,
  },
  {
    attack: "a message of 4 GiB",
    runtime: /a message of 4294967295 bytes is longer than 16777216 bytes/,
    plugin: /a message of 4294967295 bytes is longer than 262144 bytes/,
  },
  { attack: "an endless message", runtime: overdue, plugin: /is longer than 262144 bytes/ },
  { attack: "endless messages", runtime: /received another message/ },
  { attack: "slow bytes", runtime: overdue },
  { attack: "a message that is compressed a thousand times", runtime: /compressed flag set/ },
  { attack: "a long status", runtime: /^x{8192}…$/, plugin: /x{8192}…$/ },
  { attack: "silence", runtime: overdue },
  { attack: "a protocol other than HTTP/2", runtime: /error reading server preface/ },
  { attack: "an immediate close", runtime: /error reading server preface/ },
  { attack: "garbage", runtime: /error reading server preface/ },
  { attack: "endless header fields", runtime: /ENHANCE_YOUR_CALM/ },
  { attack: "endless informational responses", runtime: /more than 100 informational responses/ },
  { attack: "endless settings", runtime: /Flooding was detected/, plugin: lost },
  { attack: "endless pings", runtime: /Flooding was detected/, plugin: lost },
  { attack: "endless pings whose replies are not read", runtime: /Flooding was detected/, plugin: lost },
  { attack: "endless stream resets", runtime: /error reading from server: EOF/ },
  { attack: "endless empty data frames", runtime: /Protocol error/, plugin: lost },
  { attack: "endless window updates", runtime: overdue },
  { attack: "endless unknown frames", runtime: /Protocol error/, plugin: lost },
  { attack: "endless push promises", runtime: /Protocol error/, plugin: lost },
  { attack: "endless alternative services", runtime: overdue },
  { attack: "endless GOAWAY frames", runtime: /REFUSED_STREAM/ },
];

describe("a hostile gRPC server", { timeout: 300_000 }, () => {
  let limits: Disposable;
  let good: HostileSocket;
  let other: Runtime;
  before(async () => {
    limits = limitInformationalAnswers();
    good = await startHostileSocket("grpc", "none");
    other = runtimeAt(good.path);
  });
  after(async () => {
    await other[Symbol.asyncDispose]();
    await good[Symbol.asyncDispose]();
    limits[Symbol.dispose]();
  });
  const neighbour = async () => assert.deepEqual(await other.listContainers(undefined, never), []);

  for (const { attack, runtime: fromRuntime, plugin = fromRuntime } of cases)
    test(`on ${attack}, calls fail, this process stays small and responsive, and another runtime is served`, async () => {
      await using target = await startHostileSocket("grpc", attack);
      await using runtime = runtimeAt(target.path, timeoutFor(fromRuntime));
      await endure(async () => {
        await assert.rejects(runtime.listContainers(undefined, never), { message: fromRuntime });
        await assert.rejects(askPlugin(target.path, timeoutFor(plugin)), { message: plugin });
      }, neighbour);
    });

  test("endless events exceed the target's budget, and another runtime is served", async () => {
    await using target = await startHostileSocket("grpc", "endless events");
    await using runtime = runtimeAt(target.path);
    const events = runtime.events;
    assert.ok(events);
    await endure(async () => {
      const heard = Array.fromAsync(events(AbortSignal.timeout(20_000)));
      await assert.rejects(heard, { message: /sends more data than graftlet accepts/ });
    }, neighbour);
  });
});
