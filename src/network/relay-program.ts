import { programText } from "../lib/program-text.ts";
import { type Argv, interpreted } from "../seams/command.ts";

// Programs on the target between pods and the link (relay.py, relay.pl), each run by its interpreter from the command line. Arguments: the socket
// that leads to graftlet, and the command that fails once the rules that lead pods here are gone.
//
// A connection of a pod comes here by a rule of the firewall, and the kernel knows where it was meant to go. The program opens one to
// graftlet, says `from-address from-port to-address to-port` in a line, and joins the two; the first byte that comes back says that
// graftlet is joined to the destination. Without it the pod's connection is reset, as a refused one. Datagrams have a socket for each
// destination, since the kernel does not tell theirs, and go through standard output and input: `d TO FROM HEX`. Lines of standard
// input: `pods ADDRESS…`, whose connections alone are taken; `udp TO…`, the destinations of datagrams, answered by `udp TO=PORT…` for as
// many as there are ports; and `d TO FROM HEX`, an answer. Lines of standard output besides: `ready PORT`, `lost` when the rules are
// gone, and `full ADDRESS` when further connections of a pod are refused.
//
// A connection takes two descriptors. The program has as many as its session may (RLIMIT_NOFILE's hard limit), and keeps some for the ports
// of datagrams and the command. A pod gets another connection while it has fewer than are free, so that none takes them all.
//
// Ports are below 1024, so that nobody but root takes one over when the program has ended while the rules stand.

/** Perl has no call for its limits in what comes with it: a shell raises them. */
const raised = String.raw`exec "sh", "-c", 'ulimit -n "$(ulimit -Hn)" 2>/dev/null; exec "$@"', "sh", $^X, "-e", @ARGV`;

/** An interpreter, and the command line that runs the relay by it. */
export interface RelayProgram {
  readonly interpreter: string;
  readonly argv: Argv;
  /** Succeeds where the target has the interpreter. */
  readonly probe: Argv;
}

/** Command lines of the relay, the best first.
 *  @param link path of the socket that leads to graftlet. @param check fails once the rules are gone. */
export function relayPrograms(link: string, check: readonly string[]): readonly RelayProgram[] {
  const probe = (interpreter: "python3" | "perl") => ({ interpreter, probe: interpreted(interpreter, "") });
  return [
    { ...probe("python3"), argv: interpreted("python3", programText("src/network/relay.py"), link, ...check) },
    { ...probe("perl"), argv: interpreted("perl", raised, programText("src/network/relay.pl"), "--", link, ...check) },
  ];
}
