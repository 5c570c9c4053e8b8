import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { readDockerConfig } from "../../providers/docker/config.ts";
import { dockerRuntime } from "../../providers/docker/runtime.ts";
import { localHost } from "../../providers/local/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { never } from "../fakes/signals.ts";
import { type HostileSocket, startHostileSocket } from "../harness/hostile-socket.ts";
import { endure } from "./hostile.ts";

const clock = systemClock();

/** Timeout of requests: short where it is what ends them, and otherwise long enough for a busy machine. */
const [overdueMs, patientMs] = [1_000, 30_000];

function runtimeAt(socket: string, requestTimeoutMs = patientMs): Runtime {
  const config = readDockerConfig({ socket: `unix://${socket}`, podCIDR: "10.99.0.0/16" }, "n1");
  const limits = { requestTimeoutMs, containerLogs: { maxSizeBytes: 10 << 20, maxFiles: 5 } };
  return dockerRuntime({ config, ...limits, nodeName: "n1", host: localHost({ clock }), clock, log: silentLog() });
}

/** What an engine does, and the error of a request to it. */
interface Case {
  readonly attack: string;
  readonly refused: RegExp;
}

const overdue = /^no answer within 1000 ms$/;
const gone = /^no Docker Engine responds at/;

const cases: readonly Case[] = [
  { attack: "empty objects", refused: /^a JSON text of 8388\d+ bytes has too many values/ },
  { attack: "deep lists", refused: /^a JSON text is deeper than 256 levels$/ },
  {
    attack: "an endless response",
    refused: /^the Docker Engine's response to GET \/\S+ exceeds 8388608 bytes or 20000 chunks$/,
  },
  {
    attack: "a chunk of 4 GiB",
    refused: /^the Docker Engine's response to GET \/\S+ exceeds 8388608 bytes or 20000 chunks$/,
  },
  { attack: "an endless error", refused: /^HTTP 500 with an oversized body$/ },
  {
    attack: "endless whitespace",
    refused: /^the Docker Engine's response to GET \/\S+ exceeds 8388608 bytes or 20000 chunks$/,
  },
  {
    attack: "endless informational responses",
    refused: /^too many informational responses from the Docker Engine$/,
  },
  { attack: "slow bytes", refused: overdue },
  { attack: "silence", refused: overdue },
  { attack: "a response shorter than announced", refused: gone },
  { attack: "endless trailers", refused: gone },
  { attack: "an immediate close", refused: gone },
  { attack: "a negative length", refused: /^Parse Error: Invalid character in Content-Length$/ },
  { attack: "endless header fields", refused: /^Parse Error: Header overflow$/ },
  { attack: "an endless header line", refused: /^Parse Error: Header overflow$/ },
];

describe("a hostile Docker Engine", { timeout: 300_000 }, () => {
  let good: HostileSocket;
  let other: Runtime;
  before(async () => {
    good = await startHostileSocket("docker", "none");
    other = runtimeAt(good.path);
  });
  after(async () => {
    await other[Symbol.asyncDispose]();
    await good[Symbol.asyncDispose]();
  });
  const neighbour = async () => assert.deepEqual(await other.listContainers(undefined, never), []);
  const endured = async (attack: string, seen: (runtime: Runtime) => Promise<void>, requestTimeoutMs?: number) => {
    await using target = await startHostileSocket("docker", attack);
    await using runtime = runtimeAt(target.path, requestTimeoutMs);
    await endure(() => seen(runtime), neighbour);
  };

  for (const { attack, refused } of cases)
    test(`on ${attack}, the request fails, this process stays small and responsive, and another engine is served`, () =>
      endured(
        attack,
        (runtime) => assert.rejects(runtime.listContainers(undefined, never), { message: refused }),
        refused === overdue ? overdueMs : patientMs,
      ));

  test("each request gets exactly one response, even if the engine sends unsolicited ones", () =>
    endured("unsolicited responses", async (runtime) => {
      assert.deepEqual(await runtime.listContainers(undefined, never), []);
    }));

  for (const [attack, refused] of [
    ["endless events", /^the target sends more data than graftlet accepts/],
    ["an endless event", /^the Docker Engine sent a line of more than 4194304 bytes/],
  ] as const)
    test(`on ${attack}, the stream ends, and another engine is served`, () =>
      endured(attack, async (runtime) => {
        const { events } = runtime;
        assert.ok(events);
        await assert.rejects(Array.fromAsync(events(AbortSignal.timeout(20_000))), { message: refused });
      }));
});
