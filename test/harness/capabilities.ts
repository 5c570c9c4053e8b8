import { readFileSync } from "node:fs";

/** The capabilities in force that a process's `/proc/PID/status` tells, a bit each. @see capabilities(7) */
export function capabilitiesIn(status: string): bigint {
  return BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? "0"}`);
}

/** Those of the tests, which are root's on this machine. */
export function ownCapabilities(): bigint {
  return capabilitiesIn(readFileSync("/proc/self/status", "utf8"));
}

/** CAP_SYS_RESOURCE (24): without it no process may lower its oom_score_adj or start one that has it, and runc fails where asked to.
 *  @param capabilities of the process in question; the tests' own unless given. */
export function hasResourceCapability(capabilities = ownCapabilities()): boolean {
  return ((capabilities >> 24n) & 1n) === 1n;
}
