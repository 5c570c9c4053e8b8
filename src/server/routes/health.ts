import type { HealthMeasures } from "../ports.ts";
import { type Handler, sendText } from "../responses.ts";
import { queryOf } from "../path.ts";

export interface HealthCheck {
  readonly name: string;
  /** Reason why it is unhealthy; undefined if healthy. */
  check(): string | undefined;
}

/** Succeeds in any process that responds. */
export const ping: HealthCheck = { name: "ping", check: () => undefined };

/** /healthz: `ok`, or every check with its result if one failed or `verbose` is set; `exclude=name` omits one. Only a check's own path
 *  shows its reason.
 *  @see https://kubernetes.io/docs/reference/using-api/health-checks/ */
export function healthz(checks: readonly HealthCheck[], measures?: HealthMeasures): Handler {
  return (request, response) => {
    const query = queryOf(request.originalUrl);
    const excluded = new Set(query.getAll("exclude"));
    const verdicts = checks.map(({ name, check }) => {
      if (excluded.delete(name)) return { failed: false, text: `[+]${name} excluded: ok\n` };
      const failed = check() !== undefined;
      measures?.checked(name, !failed);
      return { failed, text: failed ? `[-]${name} failed: reason withheld\n` : `[+]${name} ok\n` };
    });
    const unknown = [...excluded].sort().map((name) => JSON.stringify(name));
    const warning =
      unknown.length === 0 ? "" : `warn: some health checks cannot be excluded: no matches for ${unknown.join(", ")}\n`;
    const details = verdicts.map(({ text }) => text).join("") + warning;
    if (verdicts.some(({ failed }) => failed)) sendText(response, 500, `${details}healthz check failed\n`);
    else sendText(response, 200, query.has("verbose") ? `${details}healthz check passed\n` : "ok");
  };
}

/** /healthz/NAME: `ok`, or the reason of a failure. */
export function healthCheck(checks: readonly HealthCheck[]): Handler {
  return (request, response) => {
    const found = checks.find(({ name }) => name === request.params["check"]);
    const failure = found?.check();
    if (!found) sendText(response, 404, "404 page not found\n");
    else if (failure === undefined) sendText(response, 200, "ok");
    else sendText(response, 500, `internal server error: ${failure}\n`);
  };
}
