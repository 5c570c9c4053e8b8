import { boundedLines } from "../lib/bounded-text.ts";

/** Traffic counters of a network interface. */
export interface InterfaceTraffic {
  readonly name: string;
  readonly rx: Traffic;
  readonly tx: Traffic;
}

export interface Traffic {
  readonly bytes: number;
  readonly packets: number;
  readonly errors: number;
  readonly dropped: number;
}

/** Interfaces whose traffic is local or also counted on another interface. (cAdvisor) */
const ignoredInterfaces = /^(lo|veth|docker|nerdctl)/i;

/** Parses a table in the format of /proc/net/dev. @see https://man7.org/linux/man-pages/man5/proc_pid_net.5.html */
export function parseNetDev(text: string): readonly InterfaceTraffic[] {
  return boundedLines(text).flatMap((line) => {
    const [, name = "", numbers = ""] = /^\s*([^\s:]+):\s*(\d.*)$/.exec(line) ?? [];
    const at = numbers.split(/\s+/).map(Number);
    if (at.length < 12 || ignoredInterfaces.test(name)) return [];
    const traffic = (from: number): Traffic => ({
      bytes: at[from] ?? 0,
      packets: at[from + 1] ?? 0,
      errors: at[from + 2] ?? 0,
      dropped: at[from + 3] ?? 0,
    });
    return [{ name, rx: traffic(0), tx: traffic(8) }];
  });
}
