import assert from "node:assert/strict";
import { Duplex, PassThrough } from "node:stream";
import { test } from "node:test";
import type { Session } from "../../../../../providers/ssh/connection/sessions.ts";
import { startSftp } from "../../../../../providers/ssh/files/sftp-client.ts";
import { packet, sftp } from "../../../../../providers/ssh/files/sftp-packets.ts";
import { CodedError } from "../../../../../src/lib/errors.ts";
import { never } from "../../../../fakes/signals.ts";

/** A session whose server says its version, and then answers nothing. */
function silentSession(): Session {
  const duplex = new Duplex({
    read: () => undefined,
    write(chunk: Buffer, _encoding, done) {
      if (chunk.readUInt8(4) === sftp.init) this.push(packet(sftp.version, 3));
      done();
    },
  });
  const channel = Object.assign(duplex, { stderr: new PassThrough(), close: () => undefined });
  return { channel, connection: { lost: never } } as unknown as Session;
}

test("a request that is given up ends the session: its caller gets the signal's reason, and other callers may try again", async () => {
  const client = await startSftp(silentSession(), never);
  const short = new AbortController();
  const read = [[sftp.read, "h", 0n, 10]] as const;
  const [own, other] = [client.exchange(read, short.signal), client.exchange(read, never)];
  short.abort(new CodedError("deadline_exceeded", "no answer within 5000 ms"));
  await assert.rejects(own, { code: "deadline_exceeded", message: "no answer within 5000 ms" });
  await assert.rejects(other, { code: "unavailable", message: /SFTP session has ended: another request/ });
  assert.equal(client.usable(), false);
  await assert.rejects(client.exchange(read, never), { code: "unavailable" });
});
