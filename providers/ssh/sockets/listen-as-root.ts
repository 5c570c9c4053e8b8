import { randomUUID } from "node:crypto";
import { CodedError, hasCode } from "../../../src/lib/errors.ts";
import type { Host, HostFs } from "../../../src/seams/host.ts";
import type { Privileges, RelayProgram } from "../shell/privileges.ts";
import { awaitGreeting } from "./relay.ts";
import type { SshProcess } from "../process/spawn.ts";
import { type Argv, command, interpreted } from "../../../src/seams/command.ts";

/** Listens on the first socket and splices each connection to the second; prints + once it listens. */
const python = `
import os, socket, sys, threading
def copy(a, b):
    try:
        while True:
            d = a.recv(65536)
            if not d: break
            b.sendall(d)
        b.shutdown(socket.SHUT_WR)
    except OSError: pass
def join(c):
    s = socket.socket(socket.AF_UNIX)
    try: s.connect(sys.argv[2])
    except OSError: return c.close()
    t = threading.Thread(target=copy, args=(c, s), daemon=True); t.start()
    copy(s, c); t.join(); c.close(); s.close()
os.umask(0o177)
l = socket.socket(socket.AF_UNIX); l.bind(sys.argv[1]); l.listen(64)
os.write(1, b"+")
while True:
    threading.Thread(target=join, args=(l.accept()[0],), daemon=True).start()
`;

const perl = `
use strict; use IO::Socket::UNIX; $SIG{CHLD} = "IGNORE"; umask 0177;
sub copy {
  my ($from, $to) = @_; my $b;
  while (sysread($from, $b, 65536)) {
    my $n = 0;
    while ($n < length $b) { my $w = syswrite($to, $b, length($b) - $n, $n); defined $w or return; $n += $w }
  }
  shutdown($to, 1);
}
my $l = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 64) or die "$!\\n";
syswrite(STDOUT, "+");
while (my $c = $l->accept) {
  next if fork();
  my $s = IO::Socket::UNIX->new(Peer => $ARGV[1]) or exit 1;
  my $up = fork();
  if ($up == 0) { copy($c, $s); exit 0 }
  copy($s, $c);
  waitpid($up, 0);
  exit 0;
}
`;

/** Commands of the listener, by interpreter. */
const programs: Readonly<Partial<Record<RelayProgram, (path: string, inner: string) => Argv>>> = {
  python3: (path, inner) => interpreted("python3", python, path, inner),
  perl: (path, inner) => interpreted("perl", perl, path, inner),
};

export interface RootListenerOptions {
  readonly fs: Pick<HostFs, "apply">;
  readonly run: Host["run"];
  readonly spawn: (argv: Argv, signal?: AbortSignal) => Promise<SshProcess>;
  /** Name of the login user. */
  readonly user: string;
}

/** A socket owned by root, for a login that is root only by sudo: sshd binds an inner socket as the login user, in a directory of
 *  that user, and a program that runs as root splices the two. */
export interface RootListener extends AsyncDisposable {
  /** Path of the socket that sshd binds. */
  readonly inner: string;
  /** Opens root's socket, after sshd has bound the inner one. */
  open(path: string, signal: AbortSignal): Promise<void>;
}

/** Creates the directory of the inner socket, and prepares the listener. @returns undefined if the target has no suitable
 *  program. */
export async function prepareRootListener(
  { fs, run, spawn, user }: RootListenerOptions,
  { relays }: Privileges,
): Promise<RootListener | undefined> {
  const program = relays.map((name) => programs[name]).find((known) => known !== undefined);
  if (!program) return undefined;
  const folder = `/tmp/graftlet-${randomUUID()}`;
  await fs.apply([{ kind: "mkdir", path: folder, mode: 0o700 }]);
  const { code, stderr } = await run(command("chown", [], [user, folder]));
  if (code !== 0)
    throw new CodedError("failed_precondition", `cannot change the owner of ${folder} to ${user}: ${stderr.trim()}`);
  const inner = `${folder}/s`;
  let relay: SshProcess | undefined;
  return {
    inner,
    async open(path, signal) {
      relay = await spawn(program(path, inner), signal);
      await awaitGreeting(relay);
    },
    async [Symbol.asyncDispose]() {
      await relay?.[Symbol.asyncDispose]();
      await fs.apply([{ kind: "remove", path: folder, recursive: true }]).catch((error: unknown) => {
        if (!hasCode(error, "unavailable")) throw error;
      });
    },
  };
}
