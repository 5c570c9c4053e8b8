/** A program on the target that relays standard input and output to a TCP connection. Once connected, no process keeps
 *  its standard error open: sshd reports the end of a command's output only together with that of its standard error. */
export interface RelayProgram {
  /** Command line. @param address a loopback address. */
  readonly argv: (address: string, port: number) => Argv;
  /** Its message on standard error once connected. */
  readonly connected: RegExp;
}

/** socat's address for its standard streams that closes standard output when the server has sent everything. Since version 1.8 the short
 *  form, `-`, does not.
 *  @see http://www.dest-unreach.org/socat/doc/socat.html#ADDRESS_STDIO */
const standardStreams = "STDIN!!STDOUT,shut-close";

/** Prints the first of these programs on the target. Netcats are unsuitable: OpenBSD's does not report that the server
 *  closed the connection, the traditional one does not half-close towards the server, and BusyBox' drops the client's
 *  data once the server has half-closed. */
export const findProgram = `
# True if socat passes on the end of what the server says while the client may still send: tells so before the client's end does.
socat_ends() {
  { sh -c 'sleep 5 3>&- & echo $! >&3; wait $!; echo late >&3' |
    socat -t 5 "${standardStreams}" EXEC:true 3>&- |
    { cat; echo ended >&3; }; } 3>&1 | {
    # The number of the process and the end come in either order.
    read -r one; read -r two
    kill "\${one#ended}\${two#ended}"
    case "$one$two" in *ended*) ;; *) false ;; esac
  }
}
if socat -V && socat_ends; then name=socat
elif perl -MIO::Socket::IP -e 1; then name=perl
elif python3 -c 'import socket, threading'; then name=python3
fi >/dev/null 2>&1
echo "$name"
`;

/** The program that `findProgramScript` printed; undefined if none was found. */
export function relayProgram(told: string): RelayProgram | undefined {
  return programs[told.trim()];
}

const python = `
import os, socket, sys, threading
try:
    peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
except OSError as error:
    sys.exit(error.strerror or str(error))
os.write(2, b"connected\\n")
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
def copy(read, write):
    data = read(65536)
    while data:
        write(data)
        data = read(65536)
def send():
    try:
        copy(lambda size: os.read(0, size), peer.sendall)
        peer.shutdown(socket.SHUT_WR)
    except OSError:
        pass
sender = threading.Thread(target=send)
sender.start()
output = os.fdopen(1, "wb", 0)
def show(data):
    rest = memoryview(data)
    while rest:
        rest = rest[output.write(rest):]
try:
    copy(peer.recv, show)
except OSError:
    os._exit(1)
output.close()
sender.join()
`;
import { type Argv, interpreted, script } from "../../../src/seams/command.ts";

const perl = `
use IO::Socket::IP;
use Socket qw(AI_NUMERICHOST);
$SIG{PIPE} = "IGNORE";
my $peer = IO::Socket::IP->new(PeerHost => $ARGV[0], PeerPort => $ARGV[1], GetAddrInfoFlags => AI_NUMERICHOST)
  or die "$!\\n";
syswrite STDERR, "connected\\n";
open STDERR, ">", "/dev/null";
sub copy {
  my ($from, $to) = @_;
  while (sysread $from, my $data, 65536) {
    for (my $at = 0; $at < length $data; ) {
      my $written = syswrite $to, $data, length($data) - $at, $at;
      return if !defined $written;
      $at += $written;
    }
  }
}
my $sender = fork;
if ($sender == 0) { close STDOUT; copy(STDIN, $peer); shutdown $peer, 1; exit 0 }
close STDIN;
copy($peer, STDOUT);
close STDOUT;
waitpid $sender, 0;
`;

/** socat keeps writing to standard error: a pipe forwards that until socat is connected. The shell keeps no file descriptor that socat
 *  closes. */
const quietly = `
trap "" PIPE
exec 3<&0 4>&1
"$@" <&3 2>&1 >&4 3<&- 4>&- | {
  exec 3<&- 4>&-
  while IFS= read -r line; do
    echo "$line" >&2
    case $line in *"starting data transfer loop"*) exit ;; esac
  done
} &
exec 0<&- 1>&- 2>&- 3<&- 4>&-
wait
`;

/** Seconds that socat keeps a half-closed connection: the kubelet's idle timeout of streams. */
const halfClosedSeconds = "14400";

/** The command by which socat relays its standard streams, each direction ending by itself. @param to an address of socat's. */
export function socatCommand(to: string): Argv {
  const options = ["-d", "-d", "-t", halfClosedSeconds, "-b", "65536"];
  return script(quietly, "socat", ...options, standardStreams, to);
}

const programs: Readonly<Record<string, RelayProgram>> = {
  socat: {
    argv: (address, port) =>
      socatCommand(address.includes(":") ? `TCP6:[${address}]:${port}` : `TCP4:${address}:${port}`),
    connected: /starting data transfer loop/,
  },
  perl: { argv: (address, port) => interpreted("perl", perl, address, String(port)), connected: /^connected$/m },
  python3: {
    argv: (address, port) => interpreted("python3", python, address, String(port)),
    connected: /^connected$/m,
  },
};
