import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, test } from "node:test";
import { readSshConfig } from "../../providers/ssh/config.ts";
import type { LinkReason } from "../../providers/ssh/connection/link-state.ts";
import { type SshHost, sshHost } from "../../providers/ssh/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import { createFairShares } from "../../src/lib/fair-shares.ts";
import { createConnectionForwarder } from "../../src/service-tunnel/connections.ts";
import { createTunnelGate } from "../../src/service-tunnel/gate.ts";
import { argvOf } from "../harness/argv.ts";
import { type HostileSsh, startHostileSsh } from "../harness/hostile-ssh.ts";
import { waitFor } from "../harness/wait.ts";
import { type HostileCase, endure } from "./hostile.ts";
import { sshBench } from "./ssh-bench.ts";

const clock = systemClock();

/** A host on the hostile target, and the target. */
interface Bench {
  readonly host: SshHost;
  readonly target: HostileSsh;
}

interface SshCase extends HostileCase<Bench> {
  /** Its name in hostile-ssh-attacks.ts. */
  readonly attack: string;
  /** The link never comes up. */
  readonly never?: true;
}

/** Waits until the link is down for this reason. */
async function isDown({ host }: Bench, reason: LinkReason | readonly LinkReason[], sentence: RegExp): Promise<void> {
  const why = await waitFor(
    "the link to be down",
    () => {
      const state = host.link.state();
      return state.kind === "down" && state.why;
    },
    { timeoutMs: 20_000, everyMs: 20, explain: () => JSON.stringify(host.link.state()) },
  );
  assert.ok(reason.includes(why.reason), why.message);
  assert.match(why.message, sentence);
  assert.ok(why.message.length < 700, "the message is as long as the peer likes");
}

/** What an attack may do while the link stays up. */
const ignored = async ({ host, target }: Bench): Promise<void> => {
  await target.begin();
  await sleep(2_000);
  assert.equal((await host.run(argvOf(["echo", "up"]))).stdout, "up\n");
};

const exceeded =
  (sentence: RegExp) =>
  async (bench: Bench): Promise<void> => {
    await bench.target.begin();
    await isDown(bench, "LimitExceeded", sentence);
  };

/** Before `exceeded`: a command whose output nobody reads. */
const unread =
  (then: (bench: Bench) => Promise<unknown>) =>
  async (bench: Bench): Promise<void> => {
    await bench.host.spawn(argvOf(["sleep", "600"]));
    await then(bench);
  };

/** Before it: a socket on the target that graftlet listens at, as that of the pods' network. */
const listening =
  (then: (bench: Bench) => Promise<void>) =>
  async (bench: Bench): Promise<void> => {
    const join = createConnectionForwarder({
      gate: createTunnelGate(),
      shares: createFairShares(100),
      onRefused: () => undefined,
      onLimitReached: () => undefined,
      clock,
    });
    assert.ok(bench.host.listen);
    await bench.host.listen({ unix: `/tmp/graftlet-hostile-${process.pid}.sock` }, (stream) => void join(stream));
    await then(bench);
  };

const refusedBy =
  (reason: LinkReason | readonly LinkReason[], sentence: RegExp) =>
  async (bench: Bench): Promise<void> => {
    await assert.rejects(bench.host.run(argvOf(["true"])), { code: "unavailable" });
    await isDown(bench, reason, sentence);
  };

const cases: readonly SshCase[] = [
  {
    name: "endlessly opens channels",
    attack: "channels",
    endure: listening(async ({ host, target }) => {
      await target.begin();
      await sleep(8_000);
      // Pods can cause this as well, so it is read slowly.
      const state = host.link.state();
      assert.ok(state.kind !== "down" || state.why.reason === "LinkDown", JSON.stringify(state));
    }),
  },
  {
    name: "opens channels for sockets that graftlet does not listen on",
    attack: "unexpected channels",
    endure: exceeded(/opened more than 5000 channels that graftlet does not expect/),
  },
  {
    name: "opens more channels than a listener keeps",
    attack: "few channels",
    endure: listening(ignored),
  },
  {
    name: "sends more output than the window allows",
    attack: "window",
    endure: unread(exceeded(/sent 32000 bytes on a channel with a window of \d+/)),
  },
  {
    name: "sends more standard error than the window allows",
    attack: "window of stderr",
    endure: unread(exceeded(/sent 32000 bytes on a channel with a window of \d+/)),
  },
  {
    name: "fills the window of a command whose output is not read with packets of one byte",
    attack: "small packets",
    endure: unread(async ({ host, target }) => {
      await target.begin();
      await sleep(3_000);
      assert.equal(host.link.state().kind, "up");
    }),
  },
  {
    name: "endlessly sends empty packets",
    attack: "empty packets",
    endure: unread(exceeded(/more than 5000 control messages per second/)),
  },
  {
    name: "endlessly requests key exchanges",
    attack: "key exchanges",
    endure: exceeded(/requested more than 2 key exchanges per second/),
  },
  {
    name: "endlessly sends messages of type SSH_MSG_IGNORE",
    attack: "ignored messages",
    endure: exceeded(/more than 5000 control messages per second/),
  },
  {
    name: "sends requests without reading the replies",
    attack: "requests whose answers are not read",
    endure: async (bench) => {
      await bench.target.begin();
      await isDown(
        bench,
        ["LinkDown", "LimitExceeded"],
        /it no longer answers|more than 5000 control messages per second/,
      );
    },
  },
  {
    name: "endlessly announces host keys",
    attack: "host keys",
    endure: async ({ host, target }) => {
      await target.begin();
      await sleep(2_000);
      const state = host.link.state();
      assert.ok(state.kind !== "down" || state.why.reason === "LimitExceeded", JSON.stringify(state));
    },
  },
  { name: "requests another login", attack: "another login", endure: exceeded(/requested another login/) },
  {
    name: "disconnects with a text of 30 KB",
    attack: "long farewell",
    endure: async (bench) => {
      await bench.target.begin();
      await isDown(bench, "LinkDown", /is lost: bye y+…\.$/);
    },
  },
  {
    name: "announces a window of gigabytes and reads nothing",
    attack: "input that is not read",
    endure: async ({ host, target }) => {
      const cat = await host.spawn(argvOf(["sleep", "600"]));
      cat.stdin.on("error", () => undefined);
      await target.begin();
      const block = Buffer.alloc(256 * 1024);
      const closed = new Promise((resolve) => cat.stdin.once("close", resolve));
      for (let written = 0; written < 2 ** 30 && cat.stdin.writable; written += block.length)
        if (!cat.stdin.write(block)) {
          const drained = new Promise((resolve) => cat.stdin.once("drain", () => resolve(true)));
          if ((await Promise.race([drained, closed, sleep(3_000)])) !== true) break;
        }
    },
  },
  {
    name: "offers only compression",
    attack: "compression",
    never: true,
    endure: refusedBy("LinkDown", /compression/),
  },
  {
    name: "offers only key exchange methods with a made-up group",
    attack: "groups of its own",
    never: true,
    endure: refusedBy("LinkDown", /no matching key exchange/),
  },
  {
    name: "announces a maximum packet size of 0",
    attack: "packets of nothing",
    never: true,
    endure: refusedBy("LimitExceeded", /announced a maximum packet size of 0 bytes/),
  },
  {
    name: "endlessly sends banners",
    attack: "banners",
    never: true,
    endure: refusedBy("LimitExceeded", /more than 100 messages before completing the login/),
  },
  {
    name: "sends endless lines before its identification",
    attack: "greeting",
    never: true,
    // ssh2 limits lines as well, as they come in blocks.
    endure: refusedBy(
      ["LimitExceeded", "LinkDown", "ConnectionRejected"],
      /before the first key exchange|greeting lines|before the login/,
    ),
  },
  {
    name: "sends an endless line before its identification",
    attack: "endless greeting line",
    never: true,
    endure: refusedBy("LinkDown", /line too long/),
  },
];

describe("a hostile SSH server", () => {
  const { hostOf } = sshBench("hostile");

  for (const { name, attack, never, endure: seen } of cases)
    test(`when the server ${name}, this process stays small and responsive, and another link is served`, async () => {
      await using other = hostOf();
      await using target = await startHostileSsh(attack);
      await using host = sshHost({ config: readSshConfig(target.fields), clock, log: silentLog() });
      if (!never) await host.run(argvOf(["true"]));
      await endure(
        () => seen({ host, target }),
        async () => assert.equal((await other.run(argvOf(["echo", "here"]))).stdout, "here\n"),
      );
    });
});
