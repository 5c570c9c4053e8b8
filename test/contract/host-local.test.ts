import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { identify, must } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";
import { hostContract } from "./host.ts";
import { localUnderTest, machineFromPod, startMachine } from "./local-under-test.ts";
import { within } from "./waiting.ts";
import { argvOf } from "../harness/argv.ts";

hostContract("this machine", () => localUnderTest());

hostContract("a machine, from a Pod of its own", machineFromPod);

test("commands run from a Pod mount on the machine, not in the Pod", async () => {
  await using machine = await startMachine();
  await using made = await localUnderTest(machine.pid);
  const { host, dir } = made;
  assert.equal((await host.run(argvOf(["mount", "-t", "tmpfs", "tmpfs", dir]))).code, 0);
  const mounts = (pid: number | "self") => readFile(`/proc/${pid}/mountinfo`, "utf8");
  assert.ok((await mounts(machine.pid)).includes(` ${dir} `));
  assert.ok(!(await mounts("self")).includes(` ${dir} `));
});

/** The process ID that a command wrote to a file. */
async function pidIn(file: string): Promise<number> {
  return waitFor("a process ID", async () => Number(await readFile(file, "utf8")) || undefined, {
    timeoutMs: 30_000,
    everyMs: 10,
  });
}

const gone = (pid: number) =>
  waitFor(`the end of process ${pid}`, () => !identify(pid), { timeoutMs: 30_000, everyMs: 10 });

/** Long enough for the commands below to have said who they are, on a busy machine too. */
const late = { timeoutMs: 2000 };

test("kills all children of a command that times out, even if the command has exited and a child holds its output open", async () => {
  await using made = await localUnderTest();
  const { host, dir } = made;
  const waits = `sleep 300 & echo $! > ${dir}/child; wait`;
  await assert.rejects(within(host.run(argvOf(["sh", "-c", waits]), late)), { code: "deadline_exceeded" });
  await gone(await pidIn(`${dir}/child`));
  const leaves = `sleep 301 & echo $! > ${dir}/orphan`;
  await assert.rejects(within(host.run(argvOf(["sh", "-c", leaves]), late)), { code: "deadline_exceeded" });
  await gone(await pidIn(`${dir}/orphan`));
});

test("a command ends without waiting for a child in another session that holds the output open", async () => {
  await using made = await localUnderTest();
  const { host, dir } = made;
  await assert.rejects(
    within(host.run(argvOf(["sh", "-c", `setsid sh -c 'echo $$ > ${dir}/free; exec sleep 302' &`]), late)),
    {
      code: "deadline_exceeded",
    },
  );
  process.kill(await pidIn(`${dir}/free`), "SIGKILL");
});

test("reports 128 plus the signal's number for a command ended by a signal", async () => {
  await using made = await localUnderTest();
  assert.equal((await made.host.run(argvOf(["sh", "-c", "kill -KILL $$"]))).code, 137);
});

test("remove does not cross a bind mount of the same file system", async () => {
  await using made = await localUnderTest();
  const { host, dir } = made;
  await host.fs.apply([
    { kind: "mkdir", path: `${dir}/precious` },
    { kind: "write", path: `${dir}/precious/f`, data: "" },
    { kind: "mkdir", path: `${dir}/tree/bound`, parents: true },
  ]);
  await must(["mount", "--bind", `${dir}/precious`, `${dir}/tree/bound`]);
  try {
    await assert.rejects(host.fs.apply([{ kind: "remove", path: `${dir}/tree`, recursive: true }]), {
      code: "failed_precondition",
    });
    assert.deepEqual(
      (await host.fs.list(`${dir}/precious`)).map(({ name }) => name),
      ["f"],
    );
  } finally {
    await must(["umount", `${dir}/tree/bound`]);
  }
});

test("open with noFollow opens nothing through a link that replaces a directory meanwhile", async () => {
  await using made = await localUnderTest();
  const { host, dir } = made;
  await host.fs.apply(
    ["d", "theirs"].flatMap((name) => [
      { kind: "mkdir", path: `${dir}/${name}` } as const,
      { kind: "write", path: `${dir}/${name}/f`, data: name } as const,
    ]),
  );
  await host.fs.apply([{ kind: "symlink", path: `${dir}/l`, target: "theirs" }]);
  await using _swapping = await made.swap(`${dir}/d`, `${dir}/l`);
  const seen = new Set<string>();
  for (let round = 0; round < 100; round += 1) {
    await using file = await host.fs.open(`${dir}/d/f`, { noFollow: true }).catch(() => undefined);
    if (file) seen.add((await file.read(0, 10)).toString());
  }
  assert.ok(!seen.has("theirs"));
});

test("two concurrent removals of one tree both succeed and leave nothing", async () => {
  await using made = await localUnderTest();
  const { host, dir } = made;
  const paths = Array.from({ length: 60 }, (_, index) => `${dir}/tree/${index % 6}/${index}`);
  await host.fs.apply(
    paths.flatMap(
      (path) =>
        [
          { kind: "mkdir", path, parents: true },
          { kind: "write", path: `${path}/f`, data: "" },
        ] as const,
    ),
  );
  await Promise.all([1, 2, 3].map(() => host.fs.apply([{ kind: "remove", path: `${dir}/tree`, recursive: true }])));
  assert.deepEqual(await host.fs.list(dir), []);
});
