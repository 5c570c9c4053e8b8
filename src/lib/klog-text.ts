import type { DestinationStream } from "pino";
import { goQuote } from "./go-quote.ts";

const severities = [
  [50, "E"],
  [40, "W"],
  [0, "I"],
] as const;

/** Converts pino's lines of JSON to the kubelet's text format, in local time: a header with the place in the source (field
 *  `caller`), the quoted message, the error, and the other fields as `key=value`.
 *  @param pid of the process, for klog's header.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#klog-output */
export function klogText(destination: DestinationStream, pid: number): DestinationStream {
  return {
    write(line) {
      const { level, time, msg, caller, err, ...fields } = JSON.parse(line) as Record<string, unknown>;
      const pairs = Object.entries({ ...errorPairs(err), ...fields }).map(
        ([key, value]) => ` ${key}=${valueText(value)}`,
      );
      const header = `${severityOf(Number(level))}${stampOf(String(time))} ${String(pid).padStart(7)} ${String(caller)}]`;
      destination.write(`${header} ${goQuote(String(msg))}${pairs.join("")}\n`);
    },
  };
}

function severityOf(level: number): string {
  return severities.find(([least]) => level >= least)?.[1] ?? "I";
}

/** Formats an RFC 3339 time with milliseconds as `MMDD hh:mm:ss.uuuuuu`. */
function stampOf(time: string): string {
  const at = new Date(time);
  const two = (value: number) => String(value).padStart(2, "0");
  const clock = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  return `${two(at.getMonth() + 1)}${two(at.getDate())} ${clock}.${String(at.getMilliseconds()).padStart(3, "0")}000`;
}

function valueText(value: unknown): string {
  return typeof value === "string" ? goQuote(value) : JSON.stringify(value);
}

/** An error's fields in klog's format: its message joined with its causes' messages, as Go wraps errors; and its stack, if
 *  any. */
function errorPairs(err: unknown): { err?: string; stack?: string } {
  if (err === undefined) return {};
  const messages: string[] = [];
  let stack: string | undefined;
  for (let at: unknown = err; at !== undefined; at = isError(at) ? at.cause : undefined) {
    const message = isError(at) ? at.message : typeof at === "string" ? at : JSON.stringify(at);
    if (!messages.at(-1)?.endsWith(message)) messages.push(message);
    if (isError(at)) stack ??= at.stack;
  }
  return { err: messages.join(": "), ...(stack !== undefined && { stack }) };
}

function isError(
  value: unknown,
): value is { readonly message: string; readonly stack?: string; readonly cause?: unknown } {
  return typeof value === "object" && value !== null && "message" in value;
}
