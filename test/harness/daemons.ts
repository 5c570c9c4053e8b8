import { readFileSync } from "node:fs";
import { join } from "node:path";
import { certificatesIn } from "./certificates.ts";
import { openApi } from "./api.ts";
import { apiServerArgv } from "./control-plane.ts";
import { insideArgv } from "./namespaces.ts";
import { isAlive, listProcesses, type ProcessId, run, signalProcess, startDaemon, startTicksOf } from "./processes.ts";
import type { RuntimeDaemon } from "./runtime-daemon.ts";
import { sshdArgv, sshdListens, sshdProcesses, writeSshdConfig } from "./sshd.ts";
import { guestArgv, guestRoot, hasGuest } from "../machines/guest-way.ts";
import { endInGuest, runsInGuest, signalInGuest, startInGuest } from "../machines/guest-daemons.ts";
import { machineOf } from "../machines/enter.ts";
import { startOnMachine } from "../machines/units.ts";
import { type Layout, readState, writeState } from "./state.ts";
import type { Tools } from "./tools.ts";
import { Hopeless, waitFor } from "./wait.ts";

/** The daemons of a cluster, by role; each logs to `logs/ROLE.log` and is found again through the state file. */
export interface Daemons {
  start(role: string, argv: readonly string[]): Promise<ProcessId>;
  /** Kills a daemon and waits for its end and that of its children (containerd has none: its shims are nobody's); one that is not running is no error. */
  kill(role: string): Promise<void>;
  /** Asks a daemon to end (SIGTERM) and waits until it has. */
  stop(role: string): Promise<void>;
  /** Sends a signal and returns at once (SIGSTOP, SIGCONT). */
  signal(role: string, signal: NodeJS.Signals): void;
  startApiServer(): Promise<void>;
  /** Starts the container runtime with the configuration that lies there, until it answers. */
  startRuntime(): Promise<void>;
  /** Waits until `ready` holds; fails at once, with the end of its log, when the daemon has ended. */
  ready(role: string, ready: () => Promise<boolean>): Promise<void>;
  /** Starts sshd, with lines put before its configuration, until it listens. */
  startSshd(lines?: readonly string[]): Promise<void>;
  /** Kills sshd and every connection of it. */
  killSshd(): Promise<void>;
  logTail(role: string, lines: number): string;
}

/** What the daemons of a cluster are started with. */
export interface DaemonsOptions {
  readonly layout: Layout;
  readonly tools: Tools;
  readonly holder: ProcessId;
  readonly runtime: RuntimeDaemon;
}

/** The daemons of the cluster at `layout`. */
export function createDaemons({ layout, tools, holder, runtime }: DaemonsOptions): Daemons {
  const logFile = (role: string): string => join(layout.logs, `${role}.log`);
  const guest = (role: string): boolean => runsInGuest(role) && hasGuest(layout);
  const logTail = (role: string, lines: number): string =>
    tailOf(join(guest(role) ? guestRoot(layout) : "/", logFile(role)), lines);
  const find = (role: string): ProcessId | undefined => readState(layout)?.daemons[role];
  const end = async (role: string, signal: NodeJS.Signals): Promise<void> => {
    if (guest(role)) return endInGuest(layout, role, signal);
    const id = find(role);
    if (!id) return;
    // dockerd's containerd dies with it, a moment later, and counts as running, even for its successor, until it is reaped.
    const all = [id, ...listProcesses().filter(({ parent }) => parent === id.pid)];
    signalProcess(id, signal);
    const reaped = () => all.every(({ pid, startTicks }) => startTicksOf(pid) !== startTicks);
    await waitFor(`the end of ${role}`, reaped, { timeoutMs: 30_000, everyMs: 20 });
  };
  const record = (role: string, id: ProcessId): ProcessId => {
    const state = readState(layout);
    if (state) writeState(layout, { ...state, daemons: { ...state.daemons, [role]: id } });
    return id;
  };
  const start = async (role: string, argv: readonly string[]): Promise<ProcessId> =>
    record(role, await startDaemon(insideArgv(layout, holder, argv), logFile(role), { cwd: "/" }));
  // A machine with an init has units for the target's own daemons. A guest's say themselves when they are ready.
  const begin = async (role: string, argv: () => string[], ready: () => Promise<boolean>): Promise<void> => {
    if (guest(role)) return startInGuest(layout, role);
    if (machineOf(layout)) record(role, await startOnMachine(layout, role));
    else await start(role, argv());
    await daemons.ready(role, ready);
  };
  const daemons: Daemons = {
    logTail,
    start,
    kill: (role) => end(role, "SIGKILL"),
    stop: (role) => end(role, "SIGTERM"),
    signal(role, signal) {
      if (guest(role)) return signalInGuest(layout, role, signal);
      const id = find(role);
      if (id) signalProcess(id, signal);
    },
    async ready(role, ready) {
      await waitFor(
        `${role} to be ready`,
        async () => {
          const id = find(role);
          if (!id || !isAlive(id)) throw new Hopeless(`${role} ended at its start:\n${logTail(role, 15)}`);
          return await ready();
        },
        { timeoutMs: 120_000, everyMs: 100, explain: () => logTail(role, 15) },
      );
    },
    async startApiServer() {
      await daemons.start("kube-apiserver", apiServerArgv(tools, layout, certificatesIn(layout.pki)));
      await daemons.ready("kube-apiserver", () => answersOk(layout));
    },
    async startRuntime() {
      await begin(
        runtime.role,
        () => runtime.argv(tools, layout),
        () => runtime.answers(layout),
      );
    },
    async startSshd(lines) {
      writeSshdConfig(layout, lines);
      await begin(
        "sshd",
        () => sshdArgv(layout),
        () => sshdListens(layout),
      );
    },
    async killSshd() {
      if (guest("sshd"))
        return void (await run(
          guestArgv(layout, ["systemctl", "kill", "--kill-whom=all", "--signal=KILL", "ssh.service"]),
        ));
      await waitFor(
        "the end of sshd and its connections",
        () => {
          const left = sshdProcesses(layout);
          for (const id of left) signalProcess(id, "SIGKILL");
          return left.length === 0;
        },
        { timeoutMs: 10_000, everyMs: 20 },
      );
    },
  };
  return daemons;
}

/** Whether the API server says that it is ready. */
async function answersOk(layout: Layout): Promise<boolean> {
  using api = openApi(layout);
  return (await api.text("/readyz")) === "ok";
}

/** The last lines of a log; empty when there is none. */
export function tailOf(file: string, lines: number): string {
  try {
    return readFileSync(file, "utf8").trimEnd().split("\n").slice(-lines).join("\n");
  } catch {
    return "";
  }
}
