import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type Reply,
  attributesOf,
  expectReply,
  isEnd,
  packet,
  packetReader,
  sftp,
} from "../../../../../providers/ssh/files/sftp-packets.ts";

test("splits packets from chunks of any size", () => {
  const stream = Buffer.concat([packet(sftp.data, 7, "some data"), packet(sftp.status, 8, 1, "end", "")]);
  for (const size of [1, 3, 5, stream.length]) {
    const found: Reply[] = [];
    const read = packetReader((reply) => found.push({ ...reply, body: Buffer.from(reply.body) }));
    for (let at = 0; at < stream.length; at += size) read(stream.subarray(at, at + size));
    assert.deepEqual(
      found.map(({ type, body }) => [type, body.readUInt32BE(0)]),
      [
        [sftp.data, 7],
        [sftp.status, 8],
      ],
    );
  }
});

test("parses a long packet in many small chunks in linear time", () => {
  const long = packet(sftp.data, 7, Buffer.alloc(500_000, "x"));
  let found = 0;
  const read = packetReader(({ body }) => (found = body.length));
  const before = process.cpuUsage();
  for (let at = 0; at < long.length; at += 2) read(long.subarray(at, at + 2));
  const { user, system } = process.cpuUsage(before);
  assert.equal(found, 4 + 4 + 500_000);
  assert.ok(user + system < 2_000_000, `${user + system} µs`);
});

test("rejects a peer that does not speak SFTP", () => {
  assert.throws(() => packetReader(() => undefined)(Buffer.from("Welcome to this machine")), {
    code: "failed_precondition",
  });
});

test("parses attributes, with absent ones as zero", () => {
  const numbers = (...values: readonly number[]) => Buffer.concat(values.map((value) => packet(0, value).subarray(5)));
  const all = Buffer.concat([numbers(0b1111, 0, 4096, 1, 2, 0o100644, 11, 12)]);
  assert.deepEqual(attributesOf(all), { size: 4096, uid: 1, gid: 2, mode: 0o100644, modifiedAtSeconds: 12 });
  assert.deepEqual(attributesOf(numbers(0b100, 0o40755)), {
    size: 0,
    uid: 0,
    gid: 0,
    mode: 0o40755,
    modifiedAtSeconds: 0,
  });
});

test("maps a status to a gRPC code", () => {
  const status = (code: number): Reply => ({ type: sftp.status, body: packet(0, code, "said", "").subarray(5) });
  for (const [number, code] of [
    [2, "not_found"],
    [3, "permission_denied"],
    [4, "unknown"],
    [5, "invalid_argument"],
    [8, "unimplemented"],
  ] as const)
    assert.throws(() => expectReply(status(number), sftp.handle, "/x"), { code, message: "/x: said" });
  assert.ok(isEnd(status(1)));
  assert.equal(isEnd(status(2)), false);
  assert.throws(() => expectReply({ type: sftp.data, body: Buffer.alloc(4) }, sftp.handle, "/x"), { code: "unknown" });
});

test("clips long error messages of the server", () => {
  const text = `no\n${"x".repeat(400_000)}`;
  const status = packet(sftp.status, 8, 4, text, "").subarray(9);
  assert.throws(
    () => expectReply({ type: sftp.status, body: status }, sftp.data, "/file"),
    (error: Error) => error.message.startsWith("/file: no xxx") && error.message.length < 400,
  );
});
