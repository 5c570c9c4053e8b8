import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import type { Connection } from "../../../../../providers/ssh/connection/connection.ts";
import type { Session } from "../../../../../providers/ssh/connection/sessions.ts";
import { startShell } from "../../../../../providers/ssh/shell/shell.ts";
import { messageOf } from "../../../../../src/lib/errors.ts";
import { never } from "../../../../fakes/signals.ts";

/** A session whose command is not a shell: it prints this and ends. */
function forcedCommand(printed: { readonly stdout?: string; readonly stderr?: string }): Session {
  const stderr = new EventEmitter();
  const channel = Object.assign(new EventEmitter(), {
    stderr,
    write() {
      setImmediate(() => {
        if (printed.stdout) channel.emit("data", Buffer.from(printed.stdout));
        if (printed.stderr) stderr.emit("data", Buffer.from(printed.stderr));
        channel.emit("close");
      });
    },
    end: () => undefined,
    close: () => undefined,
  });
  return { channel, connection: { lost: never } as unknown as Connection } as unknown as Session;
}

async function refusal(printed: Parameters<typeof forcedCommand>[0]): Promise<string> {
  return messageOf(await startShell(forcedCommand(printed)).catch((error: unknown) => error));
}

const plain =
  "the target does not give this user a POSIX shell: /bin/sh must be one, and sshd must not force another command, or a directory without programs (ChrootDirectory).";

test("quotes a cloud image's answer to a login as root, which names the user to log in as", async () => {
  const stdout = 'Please login as the user "ubuntu" rather than the user "root".\n\n';
  assert.equal(
    await refusal({ stdout }),
    `${plain} Its answer is "Please login as the user "ubuntu" rather than the user "root".": if that names another user, log in as that user.`,
  );
});

test("also quotes the standard error of a session that ends, and quotes nothing if it printed nothing", async () => {
  assert.match(
    await refusal({ stderr: "This account is not available.\n" }),
    /answer is "This account is not available\."/,
  );
  assert.equal(await refusal({}), plain);
});

test("bounds the quoted output, and makes control characters and directional overrides visible", async () => {
  const message = await refusal({ stdout: `\u001b[31mno\u202e${"x".repeat(100_000)}` });
  assert.ok(message.length < plain.length + 420, `${message.length} characters`);
  assert.ok(!message.includes("\u001b") && !message.includes("\u202e"));
  assert.match(message, /no\\u202ex/);
});
