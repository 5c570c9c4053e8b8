import type { DestinationStream } from "pino";

const severities = [
  [50, "E"],
  [40, "W"],
  [0, "I"],
] as const;

/** Converts pino's lines of JSON to the kubelet's text format, in local time: a header, the quoted message, and the fields as
 *  `key=value`. Source locations are left out.
 *  @param pid of the process, as klog has it in its header.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#klog-output */
export function klogText(destination: DestinationStream, pid: number): DestinationStream {
  return {
    write(line) {
      const { level, time, msg, ...fields } = JSON.parse(line) as Record<string, unknown>;
      const pairs = Object.entries(fields).map(([key, value]) => ` ${key}=${JSON.stringify(value)}`);
      const header = `${severityOf(Number(level))}${stampOf(String(time))} ${String(pid).padStart(7)} graftlet:1]`;
      destination.write(`${header} ${JSON.stringify(msg)}${pairs.join("")}\n`);
    },
  };
}

function severityOf(level: number): string {
  return severities.find(([least]) => level >= least)?.[1] ?? "I";
}

/** `MMDD hh:mm:ss.uuuuuu` of an RFC 3339 time, which has milliseconds. */
function stampOf(time: string): string {
  const at = new Date(time);
  const two = (value: number) => String(value).padStart(2, "0");
  const clock = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  return `${two(at.getMonth() + 1)}${two(at.getDate())} ${clock}.${String(at.getMilliseconds()).padStart(3, "0")}000`;
}
