import { PassThrough, type Readable, type Writable } from "node:stream";
import { text } from "node:stream/consumers";
import type { Clock } from "../../src/lib/clock.ts";
import { CodedError, abortError, throwIfAborted, ignoreNotFound } from "../../src/lib/errors.ts";
import { onAbort } from "../../src/lib/runnables.ts";
import type { Host, HostProcess } from "../../src/seams/host.ts";
import type { FakeFiles } from "./host-fs.ts";

export interface ProgramIo {
  readonly stdin: Readable;
  readonly stdout: Writable;
  readonly stderr: Writable;
  /** Aborts when the command is killed. */
  readonly killed: AbortSignal;
}

/** A program of the fake: its arguments and streams in, its exit code out. */
export type Program = (args: readonly string[], io: ProgramIo) => number | Promise<number>;

/** Programs that the fake has from the start: those of a machine that the pipeline uses. */
export function machinePrograms(clock: Clock, files: FakeFiles): Map<string, Program> {
  return new Map<string, Program>([
    ["true", () => 0],
    ["false", () => 1],
    ["echo", (args, { stdout }) => said(stdout, `${args.join(" ")}\n`)],
    [
      "cat",
      (_args, { stdin, stdout }) =>
        new Promise((resolve) => stdin.on("end", () => resolve(0)).pipe(stdout, { end: false })),
    ],
    [
      "sleep",
      (args, { killed }) =>
        clock.sleep(Number(args[0]) * 1000, killed).then(
          () => 0,
          () => 143,
        ),
    ],
    [
      "mount",
      (args, { stderr }) =>
        args[0]?.startsWith("--make-")
          ? 0
          : orRefused(stderr, () => {
              if (args[1] === "bind") files.bind(args[2] ?? "", args[3] ?? "");
              else {
                const options = args.includes("-o") ? args[args.indexOf("-o") + 1] : undefined;
                files.mount(args.at(-1) ?? "", args[args.indexOf("-t") + 1] ?? "", undefined, options);
              }
            }),
    ],
    [
      "stat",
      async (args, { stdout }) => {
        // `-c "%i %n"`
        for (const path of args.slice(2)) {
          const found = await ignoreNotFound(files.fs.stat(path));
          if (found) said(stdout, `${found.inode} ${path}\n`);
        }
        return 0;
      },
    ],
    ["losetup", (args) => losetup(files, args)],
    [
      "umount",
      async (args, { stderr }) => {
        const held = new Set((await loopDevices(files)).values());
        const busy = args.find((path) => held.has(path));
        if (busy !== undefined) return said(stderr, `umount: ${busy}: target is busy.\n`) + 32;
        return Math.max(...args.map((path) => orRefused(stderr, () => files.unmount(path))));
      },
    ],
  ]);
}

/** Files that loop devices hold, by the devices. */
export async function loopDevices({ fs }: FakeFiles): Promise<ReadonlyMap<string, string>> {
  const all = (await ignoreNotFound(fs.list("/sys/block"))) ?? [];
  const held = all.map(async ({ name }) => {
    const file = await ignoreNotFound(fs.readFile(`/sys/block/${name}/loop/backing_file`));
    return file ? [[`/dev/${name}`, file.toString("utf8").trim()] as const] : [];
  });
  return new Map((await Promise.all(held)).flat());
}

/** `-f FILE` and `-d DEVICE`. */
async function losetup(files: FakeFiles, [option, path = ""]: readonly string[]): Promise<number> {
  const held = await loopDevices(files);
  if (option === "-f") {
    const free = [...Array(held.size + 1).keys()].find((index) => !held.has(`/dev/loop${index}`)) ?? 0;
    const loop = `/sys/block/loop${free}/loop`;
    const data = `${await files.fs.realpath(path)}\n`;
    await files.fs.apply([
      { kind: "mkdir", path: loop, parents: true },
      { kind: "write", path: `${loop}/backing_file`, data },
    ]);
  } else if (held.has(path)) {
    await files.fs.apply([{ kind: "remove", path: `${path.replace("/dev/", "/sys/block/")}/loop/backing_file` }]);
  } else return 1;
  return 0;
}

function said(out: Writable, line: string): number {
  out.write(line);
  return 0;
}

function orRefused(stderr: Writable, work: () => void): number {
  try {
    work();
    return 0;
  } catch (error) {
    said(stderr, `${String(error)}\n`);
    return 32;
  }
}

/** Arguments as a program has them once it has read its options: the first `--` ends those. */
function withoutTerminator(args: readonly string[]): readonly string[] {
  const at = args.indexOf("--");
  return at < 0 ? args : [...args.slice(0, at), ...args.slice(at + 1)];
}

/** Host's run and spawn over a table of programs. @param isRecorded whether commands are kept. */
export function createRunner(
  clock: Clock,
  programs: ReadonlyMap<string, Program>,
  isRecorded: boolean,
): { readonly commands: readonly (readonly string[])[]; readonly run: Host["run"]; readonly spawn: Host["spawn"] } {
  const commands: (readonly string[])[] = [];
  let started = 0;
  const start = (argv: readonly string[], signal: AbortSignal | undefined): HostProcess => {
    throwIfAborted(signal);
    const args = withoutTerminator(argv.slice(1));
    started += 1;
    if (isRecorded) commands.push([...argv.slice(0, 1), ...args]);
    const program = programs.get(argv[0] ?? "");
    if (!program) throw new CodedError("not_found", `${argv[0]}: no such program`);
    const killer = new AbortController();
    const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
    let killCode: number | undefined;
    const kill = (how: "SIGTERM" | "SIGKILL" = "SIGTERM") => {
      killCode ??= how === "SIGKILL" ? 137 : 143;
      killer.abort();
    };
    const onStop = () => kill("SIGKILL");
    signal?.addEventListener("abort", onStop, { once: true });
    const ended = Promise.resolve(program(args, { stdin, stdout, stderr, killed: killer.signal })).then(
      (code) => killCode ?? code,
    );
    const exited = Promise.race([ended, onAbort(killer.signal).then(() => killCode ?? 137)]);
    void exited.then(() => {
      signal?.removeEventListener("abort", onStop);
      stdout.end();
      stderr.end();
    });
    return {
      pid: started,
      stdin,
      stdout,
      stderr,
      exited,
      kill,
      [Symbol.asyncDispose]: async () => {
        kill("SIGKILL");
        await exited;
      },
    };
  };
  return {
    commands,
    spawn: async (argv, signal) => start(argv, signal),
    async run(argv, { stdin, timeoutMs = 30_000, maxOutputBytes = 2 ** 20, signal } = {}) {
      const stop = clock.within(timeoutMs, signal);
      const running = start(argv, stop);
      running.stdin.end(stdin);
      const outputs = [text(running.stdout), text(running.stderr)] as const;
      const code = await running.exited;
      const [stdout, stderr] = await Promise.all(outputs);
      if (signal?.aborted) throw abortError(signal);
      if (stop.aborted)
        throw new CodedError("deadline_exceeded", `${argv[0]} timed out after ${timeoutMs} ms and was killed`);
      const cut = (all: string) => Buffer.from(all).subarray(0, maxOutputBytes).toString();
      return {
        code,
        stdout: cut(stdout),
        stderr: cut(stderr),
        truncated: Math.max(stdout.length, stderr.length) > maxOutputBytes,
      };
    },
  };
}
