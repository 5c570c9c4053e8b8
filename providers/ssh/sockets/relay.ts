import { posix } from "node:path";
import type { Duplex } from "node:stream";
import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { isLongSocketPath } from "../../../src/lib/socket-path.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import type { Address } from "../../../src/seams/host.ts";
import { socatCommand } from "../../docker/port-forward/programs.ts";
import type { RelayProgram } from "../shell/privileges.ts";
import type { SshProcess } from "../process/spawn.ts";
import { systemError } from "../shell/system-errors.ts";
import { type Argv, command, commandWithoutDashes, interpreted, script } from "../../../src/seams/command.ts";

/** Relays standard streams to a socket, with independent half-close; prints + once connected. sudo keeps the streams open, so
 *  under sudo the peer's end of stream can be passed on only by exiting. */
const python = `
import os, socket, sys, threading
a = sys.argv[1:]
if len(a) == 1:
    s = socket.socket(socket.AF_UNIX); s.connect(a[0])
else:
    s = socket.create_connection((a[0], int(a[1]))); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def up():
    try:
        while True:
            b = os.read(0, 65536)
            if not b: break
            s.sendall(b)
        s.shutdown(socket.SHUT_WR)
    except OSError: pass
os.write(1, b"+")
t = threading.Thread(target=up, daemon=True); t.start()
while True:
    b = s.recv(65536)
    if not b: break
    while b: b = b[os.write(1, b):]
if "SUDO_UID" in os.environ: os._exit(0)
os.close(1); os.close(2)
t.join()
`;

const perl = `
use strict; use IO::Socket::UNIX; use IO::Socket::INET;
my $s = @ARGV == 1 ? IO::Socket::UNIX->new(Peer => $ARGV[0])
  : IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => $ARGV[1], Proto => "tcp");
defined $s or die "$!\\n";
sub copy {
  my ($from, $to) = @_; my $b;
  while (sysread($from, $b, 65536)) {
    my $n = 0;
    while ($n < length $b) { my $w = syswrite($to, $b, length($b) - $n, $n); defined $w or return; $n += $w }
  }
}
syswrite(STDOUT, "+");
my $up = fork();
if ($up == 0) { close STDOUT; close STDERR; copy(*STDIN, $s); shutdown($s, 1); exit 0 }
copy($s, *STDOUT);
kill 9, $up if exists $ENV{SUDO_UID};
close STDOUT; close STDERR;
waitpid($up, 0);
`;

/** Command of a relay; `printsGreeting` is true if it prints + once connected. */
interface RelayCommand {
  readonly argv: Argv;
  readonly printsGreeting: boolean;
}

/** Returns the command of a relay to an address; for a socket with a long path the command runs in the socket's directory.
 *  Undefined if the program might misread the address. Pure. */
export function socketRelayCommand(program: RelayProgram, to: Address): RelayCommand | undefined {
  if (!("unix" in to) || !isLongSocketPath(to.unix)) return plainCommand(program, to);
  const { dir, base } = posix.parse(to.unix);
  const relay = plainCommand(program, { unix: `./${base}` });
  return relay && { ...relay, argv: script('cd -- "$1" && shift && exec "$@"', dir, ...relay.argv) };
}

function plainCommand(program: RelayProgram, to: Address): RelayCommand | undefined {
  const words = "unix" in to ? [to.unix] : [to.host, String(to.port)];
  const plain = words.every((word) => /^[\w./@:][\w./@:-]*$/.test(word));
  switch (program) {
    case "python3":
      return { argv: interpreted("python3", python, ...words), printsGreeting: true };
    case "perl":
      return { argv: interpreted("perl", perl, ...words), printsGreeting: true };
    case "socat": {
      // Commas and colons are part of socat's address syntax.
      if (!plain || words.some((word) => word.includes(":"))) return undefined;
      const address = "unix" in to ? `UNIX-CONNECT:${to.unix}` : `TCP:${to.host}:${to.port}`;
      return { argv: socatCommand(address), printsGreeting: false };
    }
    case "docker":
      // Works with Docker Engines only: it sends a request before it relays.
      return "unix" in to && plain && isDockerSocket(to.unix)
        ? { argv: command(["docker", "--host", `unix://${to.unix}`, "system", "dial-stdio"]), printsGreeting: false }
        : undefined;
    case "nc":
    case "ncat": {
      // Nmap's ncat always shuts down its side when its input ends.
      const options = [...(program === "nc" ? ["-N" as const] : []), ...("unix" in to ? ["-U" as const] : [])];
      return plain ? { argv: commandWithoutDashes(program, options, words), printsGreeting: false } : undefined;
    }
  }
}

/** True for a socket that is named like a Docker Engine's. */
function isDockerSocket(socket: string): boolean {
  return /docker[^/]*$/.test(socket);
}

/** Time after which a relay without greeting counts as connected, ms. */
const assumedConnectedMs = 300;

/** Timeout for the greeting, ms: longer than the kernel's connect timeout. */
const greetingTimeoutMs = 180_000;

/** Limit of a relay's error message, bytes. */
const maxErrorBytes = 4096;

/** Returns the connection of a relay once it is connected. @throws unavailable when it fails, with the system error as cause, if known. */
export async function relayConnection(
  relay: SshProcess,
  printsGreeting: boolean,
  { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<Duplex> {
  let output = "";
  relay.stderr.on("data", (chunk: Buffer) => (output = (output + chunk.toString("latin1")).slice(0, maxErrorBytes)));
  const stderrEnded = new Promise((resolve) => relay.stderr.once("end", resolve).once("close", resolve));
  const failed = Promise.all([relay.exited, stderrEnded]).then(([code]) => {
    const cause = systemError(output);
    throw new CodedError("unavailable", `nothing answers there (the relay ended with ${code})`, { cause });
  });
  failed.catch(() => undefined);
  try {
    // If the greeting is missing, the relay's exit gives the reason.
    const connected = printsGreeting
      ? awaitGreeting(relay).catch(() => failed)
      : clock.sleep(assumedConnectedMs, signal);
    await untilAborted(Promise.race([connected, failed]), clock.within(greetingTimeoutMs, signal));
  } catch (error) {
    const gone = relay[Symbol.asyncDispose]();
    // A hung link reports the exit late, so this is not awaited after the caller's signal has aborted.
    if (!signal.aborted) await gone;
    throw error;
  }
  return relay.io;
}

/** Waits for the + that a program prints once it is ready, and consumes it. @throws unavailable when the program ends without it. */
export function awaitGreeting({ stdout }: SshProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    const onReadable = () => {
      if (stdout.read(1) === null) return;
      stop();
      resolve();
    };
    const onEnd = () => {
      stop();
      reject(new CodedError("unavailable", "nothing answers there"));
    };
    const onError = (error: Error) => {
      stop();
      reject(error);
    };
    const stop = () => {
      stdout.off("readable", onReadable);
      stdout.off("end", onEnd);
      stdout.off("error", onError);
    };
    stdout.on("readable", onReadable);
    stdout.once("end", onEnd);
    stdout.once("error", onError);
  });
}
