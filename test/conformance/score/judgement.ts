import type { Outcome } from "../outcomes.ts";

/** What the attempts at a test come to: two that agree decide, a third one where they do not. */
export type Judgement = "passes" | "passed once" | "undecided" | "failed once" | "fails" | "skipped" | "not run";

/** The judgement on a test after its attempts so far. A test that the suite skips is not tried again. */
export function judge(attempts: readonly Outcome[]): Judgement {
  const passed = attempts.filter(({ state }) => state === "passed").length;
  const failed = attempts.filter(({ state }) => state !== "passed" && state !== "skipped").length;
  if (passed >= 2) return "passes";
  if (failed >= 2) return "fails";
  if (passed === 1) return failed === 1 ? "undecided" : "passed once";
  if (failed === 1) return "failed once";
  return attempts.length > 0 ? "skipped" : "not run";
}

/** Whether another attempt can change the judgement. */
export function isOpen(judgement: Judgement): boolean {
  return !["passes", "fails", "skipped"].includes(judgement);
}
