/** A warning or an error of the log. Texts that it does not have are empty. */
export interface LogWarning {
  readonly level: "warning" | "error";
  readonly node: string;
  readonly pod: string;
  readonly reason: string;
  readonly message: string;
  readonly cause: string;
}

/** Where pino puts the level, and its levels from which a line is a warning, and an error. */
const levelOf = /^\{"level":(\d+),/;
const [warning, error] = [40, 50];

/** Reads a line of the log, as JSON. Pure. @returns undefined for one that is no warning and no error: it is not parsed. */
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
