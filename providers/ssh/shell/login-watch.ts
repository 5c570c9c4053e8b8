import type { Clock } from "../../../src/lib/clock.ts";
import { abortError } from "../../../src/lib/errors.ts";
import type { SshConfig } from "../config.ts";
import type { LinkError } from "../connection/link-state.ts";
import type { Link } from "../connection/link.ts";
import { shellTimeoutMs, plainShell, shellHangsError } from "./privileges.ts";
import { type Sessions, discardChannel } from "../connection/sessions.ts";
import { startShell } from "./shell.ts";

export interface LoginWatchDeps {
  readonly config: SshConfig;
  readonly link: Pick<Link, "state" | "onChange" | "fail">;
  readonly sessions: Pick<Sessions, "open">;
  readonly clock: Clock;
}

/** Interval between checks while the link is up, milliseconds, before jitter. */
const checkIntervalMs = 60_000;

/** Checks every minute, while the link is up, that the login shell still answers. A hung login shell (for example one whose start-up file
 *  waits for an unavailable file system) blocks new commands on the target, though running shells continue. After two failed checks
 *  in a row the link is taken down and reconnected until the shell answers. */
export function watchLoginShell(deps: LoginWatchDeps): void {
  const { link } = deps;
  let watching: AbortController | undefined;
  const update = () => {
    const isUp = link.state().kind === "up";
    if (isUp === (watching !== undefined)) return;
    watching?.abort();
    watching = isUp ? new AbortController() : undefined;
    if (watching) watch(deps, watching.signal).catch(() => undefined);
  };
  link.onChange(update);
  update();
}

async function watch(deps: LoginWatchDeps, signal: AbortSignal): Promise<void> {
  const { clock, link } = deps;
  for (;;) {
    await clock.sleep(checkIntervalMs * clock.jitter(0.8, 1.2), signal);
    const doubt = await checkShell(deps, signal);
    // A busy target may miss the timeout once.
    const certain = doubt && (await checkShell(deps, signal));
    if (certain) link.fail(certain);
  }
}

/** Starts a login shell.
 *  @returns the error to take the link down with if the shell does not answer; undefined if it answers, or fails in another way,
 *  which the next command reports.
 *  @throws the signal's reason. */
async function checkShell(
  { config, sessions, clock }: LoginWatchDeps,
  signal: AbortSignal,
): Promise<LinkError | undefined> {
  const session = await sessions.open({ start: { exec: plainShell }, signal }).catch(() => undefined);
  if (signal.aborted) throw abortError(signal);
  if (!session) return undefined;
  const { lost } = session.connection;
  const late = clock.within(shellTimeoutMs);
  try {
    await startShell(session, AbortSignal.any([signal, lost, late]));
    return undefined;
  } catch (error) {
    return late.aborted && !lost.aborted && !signal.aborted ? shellHangsError(config, error) : undefined;
  } finally {
    discardChannel(session.channel);
  }
}
