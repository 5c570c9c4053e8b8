import type { Clock } from "../../src/lib/clock.ts";
import type { Logger } from "../../src/lib/log.ts";
import { createTargetBudget } from "../../src/lib/target-budget.ts";
import type { Host } from "../../src/seams/host.ts";
import type { SshConfig } from "./config.ts";
import type { Connection } from "./connection/connection.ts";
import { createDialer } from "./sockets/dial.ts";
import { sshFs } from "./files/fs.ts";
import { sshClock } from "./host-clock.ts";
import { type Link, createLink } from "./connection/link.ts";
import { LinkError } from "./connection/link-state.ts";
import { createListeners } from "./sockets/listen.ts";
import { watchLoginShell } from "./shell/login-watch.ts";
import { type Privileges, createPrivileges, shellCommand } from "./shell/privileges.ts";
import { podsConnection } from "./connection/pods-connection.ts";
import { createProcessGroups } from "./process/groups.ts";
import { runInOwnSession } from "./process/run-in-own-session.ts";
import { createRunner } from "./process/run.ts";
import { createSessions } from "./connection/sessions.ts";
import type { ReverseTunnel } from "./reverse/tunnel.ts";
import { createSftpSession } from "./files/sftp-session.ts";
import { type ShellPool, createShellPool } from "./shell/shell-pool.ts";
import { createSpawner } from "./process/spawn.ts";
import { createWatcher } from "./files/watch.ts";

export interface SshHostOptions {
  readonly config: SshConfig;
  readonly clock: Clock;
  readonly log: Logger;
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
  const link = createLink({ config, clock, log, check, ...(reverse && { reverse }) });
  const onExceeded = (message: string) => link.fail(new LinkError("LimitExceeded", "resource_exhausted", message));
  const budget = createTargetBudget({ clock, onExceeded });
  const sessions = createSessions({ link, clock, log });
  const privilegesProbe = createPrivileges({ config, link, sessions, clock });
  const privileges = privilegesProbe.current;
  watchLoginShell({ config, link, sessions, clock });
  const sftp = createSftpSession({ link, sessions, clock, privileges });
  const command = async (signal: AbortSignal) => shellCommand(await privileges(signal));
  const groups = createProcessGroups({ link, pool: () => pool, clock, log });
  const pool: ShellPool = createShellPool({ link, sessions, clock, log, command, onStart: groups.killOnLoss });
  const ownSession = { link, sessions, groups, clock, command };
  const run = createRunner({ pool, clock, ownSession });
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
    clock: sshClock({ clock, run, readFile: fs.readFile }),
    link,
    privileges,
    async [Symbol.asyncDispose]() {
      await link[Symbol.asyncDispose]();
      await reverse?.[Symbol.asyncDispose]();
    },
  };
}
