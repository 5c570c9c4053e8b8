import { answerCases, timingCases } from "./answers.ts";
import type { HttpCase } from "./case.ts";
import { redirectCases, requestCases } from "./requests.ts";
import { tlsCases } from "./tls.ts";

/** Every case, in an order that does not matter. */
export function httpCases(): HttpCase[] {
  return [...answerCases(), ...redirectCases(), ...requestCases(), ...timingCases(), ...tlsCases()];
}
