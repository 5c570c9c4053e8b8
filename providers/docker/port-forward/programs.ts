/** A program of the target that joins its standard input and output to a TCP connection. Once it is connected nothing has its
 *  standard error open any more: sshd tells of the end of a command's output only when that of its errors has come too. */
export interface RelayProgram {
  /** Starts it. @param address a loopback address. */
  readonly argv: (address: string, port: number) => readonly string[];
  /** What it writes to standard error once it is connected. */
  readonly connected: RegExp;
}

/** Tells the first of these that the target has. Netcats are none of them: OpenBSD's never tells that the server has ended the
 *  connection, the traditional one never tells the server that the client has said all, and BusyBox' gives up what the client
 *  still sends when the server has said all. */
export const findProgram = `
if socat -V; then name=socat
elif perl -MIO::Socket::IP -e 1; then name=perl
elif python3 -c 'import socket, threading'; then name=python3
fi >/dev/null 2>&1
echo "$name"
`;

/** The program that `findProgram` has told; undefined when it has found none. */
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

/** socat goes on writing to its standard error: it is given a pipe, from which is handed on what it says until it has
 *  connected. The shell itself holds nothing of what socat ends. */
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

/** Seconds that socat goes on with one direction when the other has ended: as long as an idle stream may live. */
const halfClosedSeconds = "14400";

const programs: Readonly<Record<string, RelayProgram>> = {
  socat: {
    argv: (address, port) => [
      "sh",
      "-c",
      quietly,
      "sh",
      "socat",
      "-d",
      "-d",
      "-t",
      halfClosedSeconds,
      "-b",
      "65536",
      "-,shut-close",
      address.includes(":") ? `TCP6:[${address}]:${port}` : `TCP4:${address}:${port}`,
    ],
    connected: /starting data transfer loop/,
  },
  perl: { argv: (address, port) => ["perl", "-e", perl, address, String(port)], connected: /^connected$/m },
  python3: { argv: (address, port) => ["python3", "-c", python, address, String(port)], connected: /^connected$/m },
};
