import assert from "node:assert/strict";
import { test } from "node:test";
import type { SftpClient } from "../../../../../providers/ssh/files/sftp-client.ts";
import { openFile } from "../../../../../providers/ssh/files/sftp-file.ts";
import { packet, sftp } from "../../../../../providers/ssh/files/sftp-packets.ts";
import { never } from "../../../../fakes/signals.ts";

const mode = 0o100644;

/** A server with one file, which answers each read with a given number of bytes. */
function server(bytes: number): SftpClient {
  const body = (reply: Buffer) => reply.subarray(9);
  const replies: Readonly<Record<number, Buffer>> = {
    [sftp.open]: packet(sftp.handle, 1, "h"),
    [sftp.fstat]: packet(sftp.attrs, 1, 4, mode),
    [sftp.read]: packet(sftp.data, 1, Buffer.alloc(bytes)),
    [sftp.close]: packet(sftp.status, 1, 0, "", ""),
  };
  return {
    extensions: new Set(),
    usable: () => true,
    close: () => undefined,
    exchange: async (requests) =>
      requests.map(([type]) => {
        const reply = replies[type] ?? Buffer.alloc(9);
        return { type: reply.readUInt8(4), body: body(reply) };
      }),
  };
}

const open = (bytes: number) =>
  openFile(
    {
      path: "/file",
      noFollow: false,
      client: server(bytes),
      stat: async () => ({
        kind: "file",
        size: 10,
        mode: mode & 0o7777,
        uid: 0,
        gid: 0,
        modifiedAt: 0,
        inode: 1,
      }),
      within: () => never,
    },
    never,
  );

test("rejects a reply that is longer than requested", async () => {
  await using honest = await open(10);
  assert.equal((await honest.read(0, 10)).length, 10);
  await using liar = await open(400_000);
  await assert.rejects(liar.read(0, 10), /the target's SFTP server sent more than was requested/);
});
