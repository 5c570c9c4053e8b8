import type { Clock } from "../../src/lib/clock.ts";
import type { ClockAndLog } from "../../src/lib/log.ts";
import { createTargetBudget } from "../../src/lib/target-budget.ts";
import type { Host, HostClock } from "../../src/seams/host.ts";
import type { SshConfig } from "./config.ts";
import type { Connection } from "./connection/connection.ts";
import { createDialer } from "./sockets/dial.ts";
import { sshFs } from "./files/fs.ts";
import { type Link, createLink } from "./connection/link.ts";
import { LinkError } from "./connection/link-state.ts";
import { createListeners } from "./sockets/listen.ts";
import { watchLoginShell } from "./shell/login-watch.ts";
import { type Privileges, createPrivileges, shellCommand } from "./shell/privileges.ts";
import { createProcessGroups } from "./process/groups.ts";
import { runInOwnSession, createRunner } from "./process/run.ts";
import { createConnectionServers } from "./connection/servers.ts";
import { createSessions, sessionsOn } from "./connection/sessions.ts";
import type { ReverseTunnel } from "./reverse/tunnel.ts";
import { createSftpSession } from "./files/sftp-session.ts";
import { type ShellPool, createShellPool } from "./shell/shell-pool.ts";
import { createSpawner } from "./process/spawn.ts";
import { createWatcher } from "./files/watch.ts";
import { hasCode, throwIfAborted, CodedError } from "../../src/lib/errors.ts";
import { command } from "../../src/seams/command.ts";

export interface SshHostOptions extends ClockAndLog {
  readonly config: SshConfig;
  /** The reverse tunnel, if the first machine connects to graftlet. */
  readonly reverse?: ReverseTunnel;
}

/** A machine reached over SSH, and the link to it. */
export interface SshHost extends Host {
  readonly link: Link;
  /** The login's privileges on the target. @throws unavailable. */
  privileges(signal: AbortSignal): Promise<Privileges>;
}

const maxScriptBytes = 1024 * 1024;

/** Creates a Host for a machine reached over SSH; graftlet installs nothing there. It connects on first use and stays connected until
 *  disposed. All calls throw unavailable while the link is down. */
export function sshHost({ config, clock, log, reverse }: SshHostOptions): SshHost {
  const check = async (connection: Connection, signal: AbortSignal): Promise<void> =>
    sftp.openOn(connection, await privilegesProbe.probe(connection, signal), signal);
  const checkFurther = async (connection: Connection, signal: AbortSignal): Promise<void> => {
    await privilegesProbe.probe(connection, signal);
    await servers.check(connection, signal);
  };
  const link = createLink({ config, clock, log, check, checkFurther, ...(reverse && { reverse }) });
  const onExceeded = (message: string) => link.fail(new LinkError("LimitExceeded", "resource_exhausted", message));
  const budget = createTargetBudget({ clock, onExceeded });
  const sessions = createSessions({ link, clock, log });
  const privilegesProbe = createPrivileges({ config, link, sessions, clock });
  const privileges = privilegesProbe.current;
  watchLoginShell({ config, link, sessions, clock });
  const sftp = createSftpSession({ link, sessions, clock, log, privileges });
  const command = async (signal: AbortSignal) => shellCommand(await privileges(signal));
  const groups = createProcessGroups({ link, pool: () => pool, clock, log });
  const pool: ShellPool = createShellPool({ link, sessions, clock, log, command, onStart: groups.killOnLoss });
  const ownSession = { link, sessions, groups, clock, command };
  const run = createRunner({ pool, clock, ownSession });
  const servers = createConnectionServers({
    link,
    run,
    async runOn(connection, argv, signal) {
      const on = sessionsOn(sessions, connection);
      return (await runInOwnSession({ ...ownSession, sessions: on }, { argv, stdin: "", limit: 1_024 }, signal)).code;
    },
  });
  const spawn = createSpawner(ownSession);
  const spawnForUser = createSpawner({ ...ownSession, forUser: true });
  const fs = sshFs({
    pool,
    sftp: sftp.get,
    runInOwnSession: (script, signal) =>
      runInOwnSession(
        ownSession,
        { argv: ["/bin/sh", "-c", 'eval "$(cat)"'], stdin: script, limit: maxScriptBytes },
        signal,
      ),
    budget,
    clock,
  });
  const listenerOptions = { fs, run, spawn, privileges, user: config.user, clock, log };
  const podsLink = {
    connection: podsConnection(link, clock),
    countExchange: () => link.countExchange(),
    state: () => link.state(),
  };
  return {
    fs,
    run,
    spawn,
    dial: createDialer({ link, spawn, privileges, clock }),
    listen: createListeners({ ...listenerOptions, link }),
    watch: createWatcher({ fs, spawn, run, clock }),
    forUsers: {
      spawn: spawnForUser,
      dial: createDialer({ link, spawn: spawnForUser, privileges, clock }),
      watch: createWatcher({ fs, spawn: spawnForUser, run, clock }),
    },
    forPods: {
      dial: createDialer({ link: podsLink, spawn: spawnForUser, privileges, clock }),
      listen: createListeners({ ...listenerOptions, link: podsLink }),
    },
    budget,
    connections: servers.connections,
    clock: sshClock({ clock, run, readFile: fs.readFile }),
    link,
    privileges,
    async [Symbol.asyncDispose]() {
      await link[Symbol.asyncDispose]();
      await reverse?.[Symbol.asyncDispose]();
    },
  };
}

/** Delay before retrying to open another connection after the target has refused one, milliseconds. */
const openRetryDelayMs = 60_000;

/** Returns a separate SSH connection for pods' traffic, to avoid head-of-line blocking of the node's own traffic. Falls back to the first
 *  connection while the target accepts no other.
 *  @throws unavailable while the link is down. */
export function podsConnection(
  link: Pick<Link, "connection" | "connections" | "openAnother">,
  clock: Pick<Clock, "monotonic">,
): Link["connection"] {
  let own: Connection | undefined;
  let nextOpenAt = 0;
  return async (signal) => {
    const first = await link.connection(signal);
    if (own && own !== first && !own.lost.aborted) return own;
    own = link.connections().findLast((connection) => connection !== first);
    if (own) return own;
    if (clock.monotonic() < nextOpenAt) return first;
    try {
      own = await link.openAnother(signal);
      return own;
    } catch (error) {
      throwIfAborted(signal);
      if (first.lost.aborted || !hasCode(error, "failed_precondition", "unavailable")) throw error;
      nextOpenAt = clock.monotonic() + openRetryDelayMs;
      return first;
    }
  };
}

interface HostClockOptions {
  readonly clock: Clock;
  readonly run: Host["run"];
  readonly readFile: Host["fs"]["readFile"];
}

/** Reads the target's clock with `date`; accurate to half a second if `date` prints whole seconds only. */
export function sshClock({ clock, run, readFile }: HostClockOptions): HostClock {
  return {
    async offsetMs(signal) {
      const before = clock.now();
      const { stdout } = await run(command("date", [], ["+%s %N"]), { ...(signal && { signal }) });
      // The target read its clock about half a round trip before the answer arrived.
      const here = (before + clock.now()) / 2;
      return Math.round(targetTime(stdout) - here);
    },
    bootId: async (signal) =>
      (await readFile("/proc/sys/kernel/random/boot_id", { ...(signal && { signal }) })).toString("latin1").trim(),
  };
}

/** Parses the output of `date "+%s %N"` to milliseconds since the epoch; only some implementations (GNU's) print nanoseconds. */
export function targetTime(printed: string): number {
  const [, seconds, nanoseconds] = /^(\d+) (\d{1,9})?/.exec(printed) ?? [];
  if (seconds === undefined) throw new CodedError("unknown", "the `date` command on the target printed no time");
  return Number(seconds) * 1000 + (nanoseconds === undefined ? 500 : Number(nanoseconds) / 1e6);
}
