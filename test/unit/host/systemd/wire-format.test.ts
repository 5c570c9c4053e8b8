import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import type { Message } from "dbus-native";
import { marshall, unmarshall } from "dbus-native/lib/message.js";
import { connectMessageBus } from "../../../../src/host/systemd/message-bus.ts";
import {
  type IncomingMessage,
  createMessageReader,
  encodeCall,
  maxMessageBytes,
  valuesOf,
} from "../../../../src/host/systemd/wire-format.ts";
import { fakeClock } from "../../../fakes/clock.ts";
import { never } from "../../../fakes/signals.ts";

const about = { type: 4, serial: 7, path: "/p", interface: "a.b", member: "C", sender: ":1.3" };
/** A signal encoded by an independent implementation. */
const signal = (signature: string, ...body: readonly unknown[]) =>
  marshall({ ...about, ...(signature !== "" && { signature, body }) } as Message);

function read(...chunks: readonly Uint8Array[]): IncomingMessage[] {
  const heard: IncomingMessage[] = [];
  const reader = createMessageReader((message) => void heard.push(message));
  chunks.forEach(reader);
  return heard;
}

/** A signal with an unchecked body. */
function raw(signature: string, body: Buffer): Buffer {
  // The last header field is the signature, which ends with `s` and a NUL byte; the body follows.
  const of = signal("s", "");
  const before = of.subarray(0, of.lastIndexOf(Buffer.from("\x01s\0")));
  const header = Buffer.concat([before, Buffer.from([signature.length]), Buffer.from(`${signature}\0`)]);
  header.writeUInt32LE(header.length - 16, 12);
  header.writeUInt32LE(body.length, 4);
  return Buffer.concat([header, Buffer.alloc((8 - (header.length % 8)) % 8), body]);
}

test("encodes calls so that an independent implementation decodes them", () => {
  const properties: readonly (readonly [string, readonly [string, unknown]])[] = [
    ["Wants", ["as", ["-.slice", "é.slice"]]],
    ["CPUAccounting", ["b", true]],
    ["MemoryMax", ["t", 2n ** 64n - 1n]],
    ["AllowedCPUs", ["ay", Buffer.from([255, 3])]],
  ];
  const call = { serial: 9, destination: "d.e", path: "/p/q", interface: "a.b", member: "StartTransientUnit" };
  const bytes = encodeCall({ ...call, signature: "ssa(sv)a(sa(sv))", body: ["a.slice", "replace", properties, []] });
  const { type, flags, serial, body, ...header } = unmarshall(bytes);
  assert.deepEqual([type, flags, { ...header, serial }], [1, 0, { ...call, signature: "ssa(sv)a(sa(sv))" }]);
  assert.deepEqual(
    JSON.stringify(body, (_, value: unknown) => (typeof value === "bigint" ? `${value}` : value)),
    JSON.stringify([
      "a.slice",
      "replace",
      properties.map(([name, [, value]]) => [name, typeof value === "bigint" ? `${value}` : value]),
      [],
    ]),
  );
  const { body: none } = unmarshall(encodeCall(call));
  assert.equal(none, undefined);
  assert.deepEqual(unmarshall(encodeCall({ ...call, signature: "ssi", body: ["x", "all", -1] })).body, [
    "x",
    "all",
    -1,
  ]);
});

test("decodes messages of either byte order, regardless of how they are split into chunks", () => {
  const bytes = Buffer.concat([signal("uoss", 1, "/job/1", "é.slice", "done"), signal("b", true), signal("")]);
  for (const size of [1, 7, 64, bytes.length]) {
    const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, n) =>
      bytes.subarray(n * size, (n + 1) * size),
    );
    const heard = read(...chunks);
    assert.deepEqual(heard.map(valuesOf), [[1, "/job/1", "é.slice", "done"], [true], []]);
    assert.deepEqual(
      heard.map(({ type, sender, path, member }) => [type, sender, path, member]),
      heard.map(() => ["signal", ":1.3", "/p", "C"]),
    );
  }
  const big = Buffer.from("420401010000000400000001000000000000002a", "hex");
  assert.equal(read(big).length, 1);
});

test("skips an oversized message and decodes the next", () => {
  const long = signal("s", "x".repeat(maxMessageBytes));
  const heard = read(long.subarray(0, 1000), long.subarray(1000), signal("b", true));
  assert.deepEqual(heard.map(valuesOf), [[true]]);
});

test("skips a message whose header it cannot decode, because any user of the target may send one", () => {
  const twice = signal("");
  const fields = Buffer.concat([twice.subarray(16), twice.subarray(16)]);
  const doubled = Buffer.concat([twice.subarray(0, 16), fields]);
  doubled.writeUInt32LE(fields.length, 12);
  const strange = signal("");
  strange[18] = "v".charCodeAt(0);
  assert.deepEqual(read(doubled, strange, signal("b", false)).map(valuesOf), [[false]]);
});

test("decodes numbers and strings only: no arrays, structs or nested variants", () => {
  for (const [signature, body] of [
    ["a()", Buffer.from("0800000000000000", "hex")],
    ["aay", Buffer.alloc(1 << 15)],
    ["(s)", Buffer.alloc(8)],
    ["s".repeat(200), Buffer.alloc(2_000)],
    ["s", Buffer.from("ffffffff00000000", "hex")],
    ["t", Buffer.alloc(4)],
    ["v", Buffer.concat([Buffer.from([3]), Buffer.from("a()\0"), Buffer.from("ffff0000", "hex")])],
    ["v", Buffer.from("0176000176000173000000000000", "hex")],
  ] as const) {
    const [message] = read(raw(signature, body));
    assert.equal(message?.signature, signature);
    assert.throws(() => message && valuesOf(message), { code: "unavailable" }, signature);
  }
  const [variant] = read(raw("v", Buffer.from("0162000001000000", "hex")));
  assert.deepEqual(variant && valuesOf(variant), [true]);
});

test("bytes that are not D-Bus close the connection", async () => {
  for (const bytes of [
    Buffer.from("HTTP/1.1 400 Bad Request\r\n"),
    Buffer.from("6c0400010000ff7f0000000100000000", "hex"),
  ]) {
    const [from, to] = [new PassThrough(), new PassThrough()];
    const connecting = connectMessageBus({ from, to }, fakeClock(), never);
    from.write("OK 1234\r\n");
    from.write(bytes);
    await assert.rejects(connecting, { code: "unavailable", message: /not D-Bus/ });
    assert.ok(from.destroyed && to.destroyed);
  }
});

test("an endless handshake closes the connection", async () => {
  const [from, to] = [new PassThrough(), new PassThrough()];
  const connecting = connectMessageBus({ from, to }, fakeClock(), never);
  from.write("x".repeat(5_000));
  await assert.rejects(connecting, { code: "unavailable", message: /not a D-Bus daemon/ });
});

test("reads at most 5,000 messages a second", async () => {
  const clock = fakeClock();
  const [from, to] = [new PassThrough({ highWaterMark: 1 << 24 }), new PassThrough()];
  const connecting = connectMessageBus({ from, to }, clock, never);
  from.write("OK 1234\r\n");
  await new Promise(setImmediate);
  from.write(Buffer.concat(Array.from({ length: 10_001 }, () => signal(""))));
  await new Promise(setImmediate);
  assert.ok(from.isPaused());
  await clock.advance(100);
  assert.ok(!from.isPaused());
  from.destroy();
  await assert.rejects(connecting, { code: "unavailable" });
});
