import assert from "node:assert/strict";
import { type Duplex, PassThrough } from "node:stream";
import { test } from "node:test";
import type { Connection } from "../../../../../providers/ssh/connection/connection.ts";
import { createDialer } from "../../../../../providers/ssh/sockets/dial.ts";
import { CodedError } from "../../../../../src/lib/errors.ts";
import { fakeClock } from "../../../../fakes/clock.ts";

/** Connects to one socket that sshd forwards to, then to another one, which it refuses.
 *  @returns the error of the second connection, and the programs of the relays that were tried. */
async function refusedAfterForwarded({ enforcesSelinux }: { readonly enforcesSelinux: boolean }) {
  const client = {
    openssh_forwardOutStreamLocal(path: string, done: (error: Error | undefined, channel?: unknown) => void) {
      if (path === "/run/bus") done(undefined, channel());
      else done(Object.assign(new Error("connect failed"), { reason: 2 }));
    },
  };
  const transport = { lost: new AbortController().signal, onLost: () => () => undefined };
  const relays: (string | undefined)[] = [];
  const dial = createDialer({
    link: {
      countExchange: () => undefined,
      connection: async () => Object.assign(transport, { client }) as unknown as Connection,
    },
    async spawn([program]) {
      relays.push(program);
      throw new CodedError("not_found", "no such program");
    },
    privileges: async () => ({
      runAs: "root",
      groups: [],
      relays: ["perl", "nc"],
      missing: [],
      ...(enforcesSelinux && { enforcesSelinux }),
    }),
    clock: fakeClock(),
  });
  (await dial({ unix: "/run/bus" })).destroy();
  const error: unknown = await dial({ unix: "/run/runtime" }).catch((reason: unknown) => reason);
  return { error, relays };
}

function channel(): Duplex {
  return Object.assign(new PassThrough(), { stderr: new PassThrough(), close: () => undefined });
}

test("a socket that sshd refuses is missing, once sshd has forwarded to another one", async () => {
  const { error, relays } = await refusedAfterForwarded({ enforcesSelinux: false });
  assert.deepEqual([error instanceof CodedError && error.code, relays], ["unavailable", []]);
});

test("a socket that sshd refuses on a target that enforces SELinux is tried by relays every time", async () => {
  const { error, relays } = await refusedAfterForwarded({ enforcesSelinux: true });
  assert.deepEqual([error instanceof CodedError && error.code, relays], ["unavailable", ["perl", "nc"]]);
});
