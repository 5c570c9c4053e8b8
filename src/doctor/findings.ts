import { messageOf } from "../lib/errors.ts";

/** A line of the doctor's report. */
export interface Finding {
  /** The part of the target or cluster that was checked. */
  readonly check: string;
  readonly level: "ok" | "warning" | "failure";
  /** Reason of the corresponding Node condition, if there is one. */
  readonly reason?: string;
  /** A sentence or two, with the remedy unless the level is ok. */
  readonly message: string;
}

/** A finding without the check's name. */
export type CheckResult = Omit<Finding, "check">;

export const ok = (message: string): CheckResult => ({ level: "ok", message });
export const warning = (message: string, reason?: string): CheckResult => verdict("warning", message, reason);
export const failure = (message: string, reason?: string): CheckResult => verdict("failure", message, reason);

function verdict(level: CheckResult["level"], message: string, reason: string | undefined): CheckResult {
  return { level, message, ...(reason !== undefined && { reason }) };
}

/** A check. An error that it throws becomes a failure, with the error's message and reason. */
export interface Check {
  readonly name: string;
  look(signal: AbortSignal): Promise<CheckResult | readonly CheckResult[]>;
}

/** Runs the checks one after another. @returns the findings, in the order of the checks. */
export async function examine(checks: readonly Check[], signal: AbortSignal): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const { name: check, look } of checks) {
    const found = await look(signal).catch((error: unknown) => {
      if (signal.aborted) throw error;
      return failure(messageOf(error), reasonOf(error));
    });
    for (const each of Array.isArray(found) ? found : [found]) findings.push({ check, ...(each as CheckResult) });
  }
  return findings;
}

function reasonOf(error: unknown): string | undefined {
  return error instanceof Error && "reason" in error && typeof error.reason === "string" ? error.reason : undefined;
}
