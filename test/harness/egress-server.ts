import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import type { KeyPair } from "./certificates.ts";
import { start } from "./processes.ts";
import { buildProgram } from "./tools.ts";

/** A server that takes the tunnels of nodes as k3s does, with the library that k3s uses, and answers HTTP CONNECT. */
export interface EgressServer extends AsyncDisposable {
  kill(): Promise<void>;
}

/** The program; built once per machine, in seconds. */
export function findEgressServer(): Promise<string> {
  return buildProgram({ name: "egress-server", module: "egress" }, (line) => console.error(line));
}

/** What one is told. `connect` is the address that answers CONNECT, `unix:PATH` for a socket; `nodes` a file with a line `ADDRESS NAME`
 *  for each node that is dialled by its address. */
export interface EgressAt {
  readonly listen: string;
  readonly connect: string;
  readonly path?: string;
  readonly direct?: boolean;
  readonly nodes?: string;
}

/** Starts one. @param around argv that runs it elsewhere. */
export function startEgressServer(
  program: string,
  at: EgressAt,
  { serving, ca }: { readonly serving: KeyPair; readonly ca: KeyPair },
  around: (argv: readonly string[]) => readonly string[] = (argv) => argv,
): EgressServer {
  const path = [...(at.path ? [`--path=${at.path}`] : []), ...(at.direct === false ? ["--direct=false"] : [])];
  if (at.nodes) path.push(`--nodes=${at.nodes}`);
  const files = [`--cert=${serving.cert}`, `--key=${serving.key}`, `--client-ca=${ca.cert}`];
  const argv = around([program, `--listen=${at.listen}`, `--connect=${at.connect}`, ...path, ...files]);
  const child: ChildProcess = start(argv, { stdio: "ignore" });
  const kill = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  };
  return { kill, [Symbol.asyncDispose]: kill };
}
