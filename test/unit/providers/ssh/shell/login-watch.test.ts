import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { readSshConfig } from "../../../../../providers/ssh/config.ts";
import type { Connection } from "../../../../../providers/ssh/connection/connection.ts";
import type { LinkError, LinkState } from "../../../../../providers/ssh/connection/link-state.ts";
import { watchLoginShell } from "../../../../../providers/ssh/shell/login-watch.ts";
import type { Session } from "../../../../../providers/ssh/connection/sessions.ts";
import { fakeClock } from "../../../../fakes/clock.ts";
import { never } from "../../../../fakes/signals.ts";

const config = readSshConfig({ host: "h", user: "u", agentSocket: "/a", knownHostsFile: "/k" });

/** Behaviour of a started login shell. */
type Shell = "answers" | "hangs" | "ends";

/** A session whose shell reports its process group, as every shell of ours does. */
function sessionOf(shell: Shell): Session {
  const stderr = Object.assign(new EventEmitter(), { resume: () => undefined });
  const channel = Object.assign(new EventEmitter(), {
    stderr,
    write(said: string) {
      const marker = /printf '%s %s\\n' (\S+) "\$\*" >&5/.exec(said)?.[1];
      if (shell === "ends") channel.emit("close");
      if (shell !== "answers" || !marker) return;
      channel.emit("data", Buffer.from(`${marker} 123 456\n`));
      stderr.emit("data", Buffer.from(`${marker}\n`));
    },
    end: () => undefined,
    close: () => undefined,
    resume: () => undefined,
  });
  const connection = { lost: never } as unknown as Connection;
  return { channel, connection } as unknown as Session;
}

/** A link that is up, to a target whose login shell behaves as `shell` returns at the time. */
function standing() {
  const clock = fakeClock();
  const at = { state: { kind: "up", since: 0, connections: 1 } as LinkState, shell: "answers" as Shell };
  const listeners: ((state: LinkState) => void)[] = [];
  const failures: LinkError[] = [];
  let started = 0;
  const become = (state: LinkState) => {
    at.state = state;
    for (const listener of listeners) listener(state);
  };
  const link = {
    state: () => at.state,
    onChange: (listener: (state: LinkState) => void) => (listeners.push(listener), () => undefined),
    fail(why: LinkError) {
      failures.push(why);
      become({ kind: "down", since: 0, why, nextTryAt: 0 });
    },
  };
  const open = async () => {
    started += 1;
    return sessionOf(at.shell);
  };
  watchLoginShell({ config, link, sessions: { open }, clock });
  return { clock, at, become, failures, started: () => started };
}

test("checks the login shell once a minute; other failures do not take the link down", async () => {
  const { clock, at, failures, started } = standing();
  await clock.advance(150_000);
  assert.equal(started(), 3);
  at.shell = "ends";
  await clock.advance(150_000);
  assert.deepEqual([started() > 3, failures], [true, []]);
});

test("takes the link down with LoginShellTimeout within two minutes after the login shell hangs", async () => {
  const { clock, at, failures, started } = standing();
  await clock.advance(50_000);
  at.shell = "hangs";
  await clock.advance(120_000);
  assert.deepEqual(
    failures.map(({ reason, message }) => [
      reason,
      message.startsWith("the login shell of u@h:22 does not answer within 15 s: "),
    ]),
    [["LoginShellTimeout", true]],
  );
  // No checks until the link is up again, for which it has a check of its own.
  const before = started();
  await clock.advance(300_000);
  assert.equal(started(), before);
});

test("keeps the link up if the login shell exceeds the timeout only once", async () => {
  const { clock, at, failures } = standing();
  at.shell = "hangs";
  await clock.advance(50_000);
  at.shell = "answers";
  await clock.advance(300_000);
  assert.deepEqual(failures, []);
});

test("stops checking when the link is closed", async () => {
  const { clock, become, started } = standing();
  become({ kind: "closed" });
  await clock.advance(300_000);
  assert.deepEqual([started(), clock.pending], [0, 0]);
});
