import { programText } from "../lib/program-text.ts";
import { type Argv, interpreted } from "../seams/command.ts";

// Relay programs on the target, between pods and the link; each is run by its interpreter from the command line. Arguments: the socket
// that leads to graftlet, and the command that fails once the redirect rules are gone.
//
// The firewall redirects a pod's connection to the relay, and the kernel knows its original destination. The program opens a connection to
// graftlet, sends `from-address from-port to-address to-port` in a line and joins the two; the first byte of the reply says that graftlet
// is connected to the destination. Without it the pod's connection is reset, as a refused one. Datagrams have one socket per destination,
// since the kernel does not report their original one, and use standard output and input: `d TO FROM HEX`. Lines of standard input: `pods
// ADDRESS…`, the only sources that are accepted; `udp TO…`, the destinations of datagrams, answered by `udp TO=PORT…` for as many as there
// are ports; and `d TO FROM HEX`, a reply. Other lines of standard output: `ready PORT`, `lost` when the rules are gone, and `full
// ADDRESS` when further connections of a pod are refused.
//
// A connection takes two descriptors. The program raises its limit to the session's hard limit (RLIMIT_NOFILE) and reserves some for UDP
// ports and the command. A pod may open another connection while it has fewer than are free, so that no pod takes them all.
//
// Ports are below 1024, so that only root can take one over when the program has ended and the rules remain.

/** Perl's core modules cannot change resource limits, so a shell raises them. */
const perlWithRaisedLimit = String.raw`exec "sh", "-c", 'ulimit -n "$(ulimit -Hn)" 2>/dev/null; exec "$@"', "sh", $^X, "-e", @ARGV`;

/** An interpreter, and the command line that runs the relay by it. */
export interface RelayProgram {
  readonly interpreter: string;
  readonly argv: Argv;
  /** Succeeds if the target has the interpreter. */
  readonly probe: Argv;
}

/** Command lines of the relay, in order of preference.
 *  @param link path of the socket that leads to graftlet.
 *  @param check fails once the rules are gone. */
export function relayPrograms(link: string, check: readonly string[]): readonly RelayProgram[] {
  const probe = (interpreter: "python3" | "perl") => ({ interpreter, probe: interpreted(interpreter, "") });
  return [
    { ...probe("python3"), argv: interpreted("python3", programText("src/service-tunnel/relay.py"), link, ...check) },
    {
      ...probe("perl"),
      argv: interpreted("perl", perlWithRaisedLimit, programText("src/service-tunnel/relay.pl"), "--", link, ...check),
    },
  ];
}
