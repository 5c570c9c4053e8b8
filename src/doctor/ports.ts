import { hasCode, messageOf } from "../lib/errors.ts";
import { type ListenAddress, tryListening } from "../server/listen.ts";
import { type Finding, type CheckResult, examine, failure, ok, warning } from "./findings.ts";
import type { ListeningProcess } from "./listeners.ts";

/** A listen address of graftlet's own machine. */
export interface Port extends ListenAddress {
  /** Name of the server. */
  readonly of: string;
}

export interface PortsExamination {
  readonly ports: readonly Port[];
  /** PID of the process that runs the node; undefined if unknown. */
  readonly runner: number | undefined;
  /** The processes that listen on a port, as far as they are visible. */
  readonly listenersAt: (port: number) => Promise<readonly ListeningProcess[]>;
}

/** Checks whether graftlet listens on its ports, or can. */
export async function examinePorts(of: PortsExamination, signal: AbortSignal): Promise<readonly Finding[]> {
  const checks = of.ports.map((port) => ({ name: "ports", look: () => verdictOf(port, of) }));
  return examine(checks, signal);
}

async function verdictOf(at: Port, { runner, listenersAt }: PortsExamination): Promise<CheckResult> {
  const place = `${at.of}, port ${at.port} on ${at.address}`;
  try {
    await tryListening(at);
  } catch (error) {
    if (!hasCode(error, "already_exists")) return failure(messageOf(error));
    const listeners = await listenersAt(at.port);
    if (listeners.some(({ pid }) => pid === runner)) return ok(`${place}: graftlet serves it (process ${runner})`);
    if (listeners.length === 0)
      return warning(`${place}: in use by a process that only root and graftlet's own user can see`);
    return failure([messageOf(error), ...listeners.map(listenerText)].join("; "));
  }
  if (runner === undefined) return ok(`${place}: free`);
  return warning(
    `${place}: free, although graftlet (process ${runner}) runs the node: it is still starting, or was started with other flags`,
  );
}

const listenerText = ({ pid, program }: ListeningProcess) => `process ${pid} (${program}) listens there`;
