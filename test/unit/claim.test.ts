import assert from "node:assert/strict";
import { test } from "node:test";
import { claimTarget } from "../../src/claim.ts";
import { fakeClock } from "../fakes/clock.ts";
import { type FakeHost, fakeHost } from "../fakes/host.ts";

const sharing = "exclusive";
const never = new AbortController().signal;
const config = { rootDir: "/var/lib/kubelet" };
const health = { host: "127.0.0.1", port: 10_248 };

/** A host whose `flock` gives the lock to one at a time. */
function machine() {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  let held = false;
  host.program("flock", async (_args, { stdin, stdout, killed }) => {
    if (held) return 1;
    held = true;
    stdout.write("held\n");
    await new Promise((resolve) => {
      stdin.once("end", resolve).resume();
      killed.addEventListener("abort", resolve, { once: true });
    });
    held = false;
    return 0;
  });
  return { clock, host };
}

/** An HTTP server's answer on the health port, or silence. */
function listening(host: FakeHost, answer: string | undefined): Promise<AsyncDisposable> {
  return host.listen(health, (connection) => connection.once("data", () => void (answer && connection.end(answer))));
}

test("a root directory is made, private, and held until given back", async () => {
  const { host, clock } = machine();
  const claim = await claimTarget({ host, sharing, clock }, config, never);
  assert.equal((await host.fs.stat("/var/lib/kubelet/graftlet")).mode, 0o700);
  await assert.rejects(claimTarget({ host, sharing, clock }, config, never), {
    code: "failed_precondition",
    message:
      '--root-dir "/var/lib/kubelet" is in use by another graftlet (RuntimeInUse): stop that one, or name another directory',
  });
  await claim[Symbol.asyncDispose]();
  await using _again = await claimTarget({ host, sharing, clock }, config, never);
});

test("a root directory that cannot be written is refused in one sentence", async () => {
  const { host, clock } = machine();
  host.files.put("/var/lib", { data: "a file" });
  const refused = await claimTarget({ host, sharing, clock }, config, never).catch((error: unknown) => error);
  assert.match(
    String(refused),
    /--root-dir "\/var\/lib\/kubelet" is not writable \(.*\): make it so, or name another directory$/,
  );
});

test("a kubelet that answers on the target keeps us off, and the root directory is given back", async () => {
  const { host, clock } = machine();
  {
    await using _kubelet = await listening(host, "HTTP/1.1 200 OK\r\n\r\nok");
    await assert.rejects(claimTarget({ host, sharing, clock }, config, never), {
      code: "failed_precondition",
      message: /another agent answers on the target's port 10248 \(RuntimeInUse\)/,
    });
  }
  await using _claim = await claimTarget({ host, sharing, clock }, config, never);
});

test("something else on that port does not: no HTTP, and not even a word", async () => {
  for (const answer of ["SSH-2.0-x\r\n", undefined]) {
    const { host, clock } = machine();
    await using _other = await listening(host, answer);
    const claiming = claimTarget({ host, sharing, clock }, config, never);
    await clock.advance(2_000);
    await using _claim = await claiming;
  }
});

test("nodes that share their runtime stand side by side; one that has it to itself does not", async () => {
  const { host, clock } = machine();
  const says = (who: string) => `HTTP/1.1 200 OK\r\nServer: ${who}\r\nContent-Length: 2\r\n\r\nok`;
  const refused = { code: "failed_precondition", message: /RuntimeInUse/ };
  const shared = { host, sharing: "shared", clock } as const;
  {
    await using _neighbour = await listening(host, says("graftlet (shared)"));
    await using _claim = await claimTarget(shared, config, never);
  }
  {
    await using _neighbour = await listening(host, says("graftlet (shared)"));
    await assert.rejects(claimTarget({ host, sharing, clock }, config, never), refused);
  }
  await using _neighbour = await listening(host, says("graftlet (exclusive)"));
  await assert.rejects(claimTarget(shared, config, never), refused);
});
