import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { certificatesIn } from "./certificates.ts";
import { containerdArgv } from "./containerd.ts";
import { apiServerArgv, apiServerUrl } from "./control-plane.ts";
import { insideArgv, networkArgv } from "./namespaces.ts";
import { isAlive, type ProcessId, run, signalProcess, startDaemon } from "./processes.ts";
import { type Layout, readState, writeState } from "./state.ts";
import type { Tools } from "./tools.ts";
import { Hopeless, waitFor } from "./wait.ts";

/** The daemons of a cluster, by role; each logs to `logs/ROLE.log` and is found again through the state file. */
export interface Daemons {
  start(role: string, argv: readonly string[]): Promise<ProcessId>;
  /** Kills a daemon and waits for its end; one that is not running is no error. */
  kill(role: string): Promise<void>;
  startApiServer(): Promise<void>;
  startContainerd(): Promise<void>;
  /** Waits until `ready` holds; fails at once, with the end of its log, when the daemon has ended. */
  ready(role: string, ready: () => Promise<boolean>): Promise<void>;
  logTail(role: string, lines: number): string;
}

/** The daemons of the cluster at `layout`. */
export function createDaemons({ layout, tools, holder }: { layout: Layout; tools: Tools; holder: ProcessId }): Daemons {
  const logFile = (role: string): string => join(layout.logs, `${role}.log`);
  const logTail = (role: string, lines: number): string => tailOf(logFile(role), lines);
  const find = (role: string): ProcessId | undefined => readState(layout)?.daemons[role];
  const daemons: Daemons = {
    logTail,
    async start(role, argv) {
      const id = await startDaemon(insideArgv(layout, holder, argv), logFile(role), { cwd: "/" });
      const state = readState(layout);
      if (state) writeState(layout, { ...state, daemons: { ...state.daemons, [role]: id } });
      return id;
    },
    async kill(role) {
      const id = find(role);
      if (!id) return;
      signalProcess(id, "SIGKILL");
      await waitFor(`the end of ${role}`, () => !isAlive(id), { timeoutMs: 10_000, everyMs: 20 });
    },
    async ready(role, ready) {
      await waitFor(
        `${role} to be ready`,
        async () => {
          const id = find(role);
          if (!id || !isAlive(id)) throw new Hopeless(`${role} ended at its start:\n${logTail(role, 15)}`);
          return await ready();
        },
        { timeoutMs: 120_000, everyMs: 100, explain: () => logTail(role, 15) },
      );
    },
    async startApiServer() {
      await daemons.start("kube-apiserver", apiServerArgv(tools, layout, certificatesIn(layout.pki)));
      await daemons.ready("kube-apiserver", () => answersOk(layout, tools));
    },
    async startContainerd() {
      await daemons.start("containerd", containerdArgv(tools, layout));
      await daemons.ready("containerd", () => accepts(layout.containerdSocket));
    },
  };
  return daemons;
}

/** Whether the API server says that it is ready; anybody may ask. */
async function answersOk(layout: Layout, tools: Tools): Promise<boolean> {
  const { stdout } = await run(
    networkArgv(layout, [
      tools.path("curl"),
      "--silent",
      "--max-time",
      "3",
      "--cacert",
      join(layout.pki, "ca.crt"),
      `${apiServerUrl}/readyz`,
    ]),
  );
  return stdout === "ok";
}

function accepts(socket: string): Promise<boolean> {
  return new Promise((resolve) => {
    const connection = connect(socket);
    connection.once("connect", () => {
      connection.destroy();
      resolve(true);
    });
    connection.once("error", () => resolve(false));
  });
}

/** The last lines of a log; empty when there is none. */
export function tailOf(file: string, lines: number): string {
  try {
    return readFileSync(file, "utf8").trimEnd().split("\n").slice(-lines).join("\n");
  } catch {
    return "";
  }
}
