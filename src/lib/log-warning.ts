/** A warning or error line of the log. Missing fields are empty. */
export interface LogWarning {
  readonly level: "warning" | "error";
  readonly node: string;
  readonly pod: string;
  readonly reason: string;
  readonly message: string;
  readonly cause: string;
}

/** Where pino writes the level, and the levels from which a line is a warning or an error. */
const levelOf = /^\{"level":(\d+),/;
const [warning, error] = [40, 50];

/** Parses a JSON log line. Pure. @returns undefined, without parsing, for a line that is neither a warning nor an error. */
export function warningOf(line: string): LogWarning | undefined {
  const level = Number(levelOf.exec(line)?.[1] ?? 0);
  if (level < warning) return undefined;
  const { node, pod, reason, err, why, msg } = JSON.parse(line) as Readonly<Record<string, unknown>>;
  const text = (value: unknown) => (typeof value === "string" ? value : "");
  const cause = text(why) || (typeof err === "object" && err && "message" in err ? text(err.message) : text(err));
  return {
    level: level >= error ? "error" : "warning",
    node: text(node),
    pod: text(pod),
    reason: text(reason),
    message: text(msg),
    cause,
  };
}
