import { CodedError } from "../../../src/lib/errors.ts";
import type { HostConnections, RunOptions, RunResult } from "../../../src/seams/host.ts";
import type { Argv } from "../../../src/seams/command.ts";
import type { Connection } from "./connection.ts";
import type { Link } from "./link.ts";

export interface ConnectionServersOptions {
  readonly link: Pick<Link, "connections">;
  /** Runs a command over any connection. */
  readonly run: (argv: Argv, options: RunOptions) => Promise<RunResult>;
  /** Runs a command over this connection, which may not have been added to the link yet. @returns its exit code. */
  readonly runOn: (connection: Connection, argv: Argv, signal: AbortSignal) => Promise<number | undefined>;
}

/** Tells which processes on the target serve the link's connections, and runs commands on connections before they are used. */
export function createConnectionServers({ link, run, runOn }: ConnectionServersOptions) {
  const commands = new Set<(server: string) => Argv>();
  /** Further connections, also before the link has them. */
  const further = new Set<Connection>();
  const servers = (): string[] =>
    [...new Set([...link.connections(), ...further])].flatMap(({ server }) => server ?? []);
  const connections: HostConnections = {
    servers,
    async onFurther(known, command, signal) {
      commands.add(command);
      try {
        for (const server of servers().filter((each) => !known.includes(each)))
          throwUnlessZero((await run(command(server), { signal })).code);
      } catch (error) {
        commands.delete(command);
        throw error;
      }
      return () => void commands.delete(command);
    },
  };
  return {
    connections,
    /** Runs the commands for a connection whose server is known, if it is. @throws failed_precondition if one fails. */
    async check(connection: Connection, signal: AbortSignal): Promise<void> {
      const { server, lost } = connection;
      if (server === undefined) return;
      further.add(connection);
      lost.addEventListener("abort", () => further.delete(connection), { once: true });
      for (const command of commands) throwUnlessZero(await runOn(connection, command(server), signal));
    },
  };
}

function throwUnlessZero(code: number | undefined): void {
  if (code !== 0)
    throw new CodedError("failed_precondition", `a further connection is not used: its check ended with ${code}`);
}
