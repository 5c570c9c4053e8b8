import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import { converse } from "../../harness/conversation.ts";
import { bytesRead, forgetPeak, memoryOf } from "../../harness/holdings.ts";
import type { Lab } from "../../harness/lab.ts";
import { particulars } from "../../harness/particulars.ts";
import { shell } from "../../harness/pods.ts";
import { providerUnderTest } from "../../harness/runtime-daemon.ts";

const { amount: mebibytes, allowance } = particulars[providerUnderTest()].transfer;
const bytes = mebibytes << 20;
const lineBytes = 4096;
/** Warm-up, bytes: streams and their buffers are as large as they get after it. */
const warming = 32 << 20;
/** As much of numbered lines, so that a lost, doubled or moved piece changes the checksum. */
const writeLines = (amount: number): string =>
  `pad=$(head -c ${lineBytes - 10} /dev/zero | tr '\\0' x); awk -v pad=$pad 'BEGIN { for (i = 0; i < ${amount / lineBytes}; i++) printf "%08d %s\\n", i, pad }'`;

/** The bytes of `writeLines(bytes)` in blocks. */
function* lines(): Generator<Buffer> {
  const perBlock = 256;
  const pad = "x".repeat(lineBytes - 10);
  for (let first = 0; first < bytes / lineBytes; first += perBlock) {
    yield Buffer.from(
      Array.from({ length: perBlock }, (_, index) => `${String(first + index).padStart(8, "0")} ${pad}\n`).join(""),
    );
  }
}

function expectedSum(): string {
  const hash = createHash("md5");
  for (const block of lines()) hash.update(block);
  return hash.digest("hex");
}

/** Far more than its memory goes through graftlet, whose memory does not depend on the amount. */
export function transferTests(lab: () => Lab): void {
  describe(`transfers of ${mebibytes} MiB through graftlet`, { timeout: 900_000 }, () => {
    let expected = "";
    before(async () => {
      expected = expectedSum();
      const { cluster, pods } = lab();
      await pods.create("transfer", {});
      await pods.ready("transfer");
      await cluster.kubectl(["exec", "-i", "transfer", "--", "cat"], { stdin: Buffer.alloc(warming) });
      await received(["exec", "transfer", "--", "head", "-c", String(warming), "/dev/zero"]);
      // Logs are read another way than exec's streams: they are warmed up too.
      await pods.create("warm", {
        restartPolicy: "Never",
        containers: [shell(writeLines(warming))],
      });
      await pods.until("warm", "to have ended", (pod) => pod.status?.phase === "Succeeded", 240_000);
      await received(["logs", "warm"]);
    });

    // A command goes on writing when its client has gone.
    after(() => lab().pods.remove("transfer", 0));

    /** Does something, and asserts that graftlet's memory need not grow by more than the allowance meanwhile: what depends on
     *  the amount grows every time, the engine's own pools once in a while. */
    async function bounded(what: (turn: number) => Promise<void>): Promise<void> {
      const { pid } = lab().agent;
      const seen: string[] = [];
      for (let turn = 0; turn < 3; turn += 1) {
        forgetPeak(pid);
        const level = memoryOf(pid).now;
        await what(turn);
        const { peak } = memoryOf(pid);
        if (peak - level < allowance) return;
        seen.push(`from ${level.toFixed()} to ${peak.toFixed()}`);
      }
      assert.fail(`graftlet grew each time: ${seen.join(", ")} MiB`);
    }

    /** The checksum of what kubectl writes. */
    async function received(args: readonly string[]): Promise<string> {
      const child = lab().cluster.startKubectl(args, { stdio: ["ignore", "pipe", "inherit"] });
      const hash = createHash("md5");
      child.stdout?.on("data", (chunk: Buffer) => hash.update(chunk));
      const [code] = await once(child, "close");
      assert.equal(code, 0);
      return hash.digest("hex");
    }

    test(`kubectl exec transfers ${mebibytes} MiB from a command`, () =>
      bounded(async () =>
        assert.equal(await received(["exec", "transfer", "--", "sh", "-c", writeLines(bytes)]), expected),
      ));

    test(`kubectl exec transfers ${mebibytes} MiB to a command`, () =>
      bounded(async () => {
        await using talk = converse(lab().cluster.startKubectl(["exec", "-i", "transfer", "--", "md5sum"]));
        const input = talk.child.stdin;
        assert.ok(input);
        for (const block of lines()) if (!input.write(block)) await once(input, "drain");
        talk.endInput();
        assert.equal(await talk.ended(), 0);
        assert.equal(talk.stdout(), `${expected}  -\n`);
      }));

    test(`kubectl logs --follow transfers ${mebibytes} MiB from a log while it is written`, () =>
      bounded(async (turn) => {
        const { pods } = lab();
        const talkative = `talkative-${turn}`;
        await pods.create(talkative, { restartPolicy: "Never", containers: [shell(writeLines(bytes))] });
        await pods.until(
          talkative,
          "to have started",
          (pod) => pod.status?.phase === "Running" || pod.status?.phase === "Succeeded",
        );
        assert.equal(await received(["logs", "--follow", talkative]), expected);
      }));

    test("stops reading for a client that does not read", () =>
      bounded(async () => {
        const { cluster, agent } = lab();
        const silent = cluster.startKubectl(["exec", "transfer", "--", "cat", "/dev/zero"], {
          stdio: ["ignore", "pipe", "inherit"],
        });
        try {
          const start = bytesRead(agent.pid);
          await cluster.waitFor("the stream to begin", () => bytesRead(agent.pid) - start > 1 << 20);
          let last = -Infinity;
          await cluster.waitFor(
            "graftlet to read no more",
            () => {
              const now = bytesRead(agent.pid);
              const moved = now - last;
              last = now;
              return moved < 1 << 20;
            },
            { everyMs: 1000 },
          );
        } finally {
          silent.kill("SIGKILL");
        }
      }));
  });
}
