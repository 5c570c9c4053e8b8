import { programText } from "../../../src/lib/program-text.ts";
import { type Argv, interpreted, script } from "../../../src/seams/command.ts";

/** A program on the target that relays standard input and output to a TCP connection. Once the server has ended, no process
 *  of it keeps standard error open: sshd reports the end of a command's output only once its standard error has ended, too. */
export interface PortForwardProgram {
  /** Command line. @param address a loopback address. */
  readonly argv: (address: string, port: number) => Argv;
  /** Matches the program's message on standard error once it is connected. Programs other than socat also tell when the server has ended,
   *  by `ended BYTES`. */
  readonly connected: RegExp;
}

/** Address of the standard streams, in socat's syntax, that closes standard output when the server has sent everything. Since
 *  version 1.8 the short form, `-`, does not.
 *  @see http://www.dest-unreach.org/socat/doc/socat.html#ADDRESS_STDIO */
const standardStreams = "STDIN!!STDOUT,shut-close";

/** Shell script that prints the name of the first of these programs that the target has. Netcats are unsuitable: OpenBSD's does
 *  not report that the server closed the connection, the traditional one does not half-close towards the server, and BusyBox'
 *  drops the client's data once the server has half-closed. */
export const findProgramScript = (): string => directoryText("find-program.sh");

/** Returns the program whose name `findProgramScript` printed; undefined if none was found. */
export function relayProgram(name: string): PortForwardProgram | undefined {
  return programs[name.trim()];
}

/** Seconds that socat keeps a half-closed connection: the kubelet's idle timeout of streams. */
const halfClosedSeconds = "14400";

/** Returns the command with which socat relays its standard streams; each direction ends independently. @param to an address in
 *  socat's syntax. */
export function socatCommand(to: string): Argv {
  const options = ["-d", "-d", "-t", halfClosedSeconds, "-b", "65536"];
  return script(directoryText("socat-quietly.sh"), "socat", ...options, standardStreams, to);
}

const programs: Readonly<Record<string, PortForwardProgram>> = {
  socat: {
    argv: (address, port) =>
      socatCommand(address.includes(":") ? `TCP6:[${address}]:${port}` : `TCP4:${address}:${port}`),
    connected: /starting data transfer loop/,
  },
  perl: {
    argv: (address, port) => interpreted("perl", directoryText("forward.pl"), address, String(port)),
    connected: /^connected$/m,
  },
  python3: {
    argv: (address, port) => interpreted("python3", directoryText("forward.py"), address, String(port)),
    connected: /^connected$/m,
  },
};

function directoryText(name: string): string {
  return programText(`providers/docker/port-forward/${name}`);
}
