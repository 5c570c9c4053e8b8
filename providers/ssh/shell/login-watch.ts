import type { Clock } from "../../../src/lib/clock.ts";
import { abortError } from "../../../src/lib/errors.ts";
import type { SshConfig } from "../config.ts";
import type { LinkError } from "../connection/link-state.ts";
import type { Link } from "../connection/link.ts";
import { answerWithinMs, plainShell, shellHangs } from "./privileges.ts";
import { type Sessions, discard } from "../connection/sessions.ts";
import { startShell } from "./shell.ts";

export interface LoginWatchDeps {
  readonly config: SshConfig;
  readonly link: Pick<Link, "state" | "onChange" | "fail">;
  readonly sessions: Pick<Sessions, "open">;
  readonly clock: Clock;
}

/** Interval between checks while the link is up, milliseconds, before jitter. */
const everyMs = 60_000;

/** Checks every minute, while the link is up, that the login shell still answers. A hung login shell (for example one whose start-up file
 *  waits for an unavailable file system) blocks new commands on the target, though running shells continue. After two failed checks
 *  in a row the link is taken down and reconnected until the shell answers. */
export function watchLoginShell(deps: LoginWatchDeps): void {
  const { link } = deps;
  let standing: AbortController | undefined;
  const look = () => {
    const isUp = link.state().is === "up";
    if (isUp === (standing !== undefined)) return;
    standing?.abort();
    standing = isUp ? new AbortController() : undefined;
    if (standing) watch(deps, standing.signal).catch(() => undefined);
  };
  link.onChange(look);
  look();
}

async function watch(deps: LoginWatchDeps, signal: AbortSignal): Promise<void> {
  const { clock, link } = deps;
  for (;;) {
    await clock.sleep(everyMs * clock.jitter(0.8, 1.2), signal);
    const doubt = await hangs(deps, signal);
    // A busy target may miss the timeout once.
    const certain = doubt && (await hangs(deps, signal));
    if (certain) link.fail(certain);
  }
}

/** Starts a login shell.
 *  @returns the error to take the link down with if the shell does not answer; undefined if it answers, or fails in another
 *  way, which its next user reports.
 *  @throws the signal's reason. */
async function hangs({ config, sessions, clock }: LoginWatchDeps, signal: AbortSignal): Promise<LinkError | undefined> {
  const session = await sessions.open({ start: { exec: plainShell }, signal }).catch(() => undefined);
  if (signal.aborted) throw abortError(signal);
  if (!session) return undefined;
  const { lost } = session.connection;
  const late = clock.within(answerWithinMs);
  try {
    await startShell(session, AbortSignal.any([signal, lost, late]));
    return undefined;
  } catch (error) {
    return late.aborted && !lost.aborted && !signal.aborted ? shellHangs(config, error) : undefined;
  } finally {
    discard(session.channel);
  }
}
