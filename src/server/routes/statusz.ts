import { rfc3339 } from "../../lib/rfc3339.ts";
import { kubeletVersion } from "../../version.ts";
import type { KubeletServerDeps } from "../ports.ts";
import { heading, separators, zpage } from "../zpages.ts";
import type { Handler } from "../responses.ts";

const binaryVersion = kubeletVersion.replace(/^v/, "");
const emulationVersion = binaryVersion.split(".").slice(0, 2).join(".");
/** Shown in place of a kubelet's Go version. */
const engineVersion = `node ${process.version}`;

/** /statusz: start time and versions of the process, and the paths for debugging. */
export function statusz(deps: Pick<KubeletServerDeps, "config" | "clock">): Handler {
  const { clock } = deps;
  const uptimeSeconds = () => Math.floor(process.uptime());
  const startedAt = () => new Date(Math.round(clock.now() / 1000 - process.uptime()) * 1000);
  const paths = pathsOf(deps);
  return zpage({
    name: "statusz",
    kind: "Statusz",
    text() {
      const separator = separators[Math.floor(clock.jitter(0, separators.length))] ?? separators[0];
      const line = (name: string, value: string) => `${name}${separator} ${value}\n`;
      return (
        `${heading("statusz")}\n` +
        line("Started", unixDate(startedAt())) +
        line("Up", hoursAndMinutes(uptimeSeconds())) +
        line("Go version", engineVersion) +
        line("Binary version", binaryVersion) +
        line("Emulation version", emulationVersion) +
        line("Paths", paths.join(" "))
      );
    },
    fields: () => ({
      startTime: rfc3339(startedAt().getTime()),
      uptimeSeconds: uptimeSeconds(),
      goVersion: engineVersion,
      binaryVersion,
      emulationVersion,
      paths,
    }),
  });
}

/** The paths that a kubelet lists: those that its server handles outside of web services. `/logs` is among them only if its
 *  endpoint is disabled. */
function pathsOf({ config }: Pick<KubeletServerDeps, "config">): readonly string[] {
  return [
    "/configz",
    "/debug",
    ...(config.flagz ? ["/flagz"] : []),
    "/healthz",
    ...(config.enableSystemLogHandler ? [] : ["/logs"]),
    "/metrics",
  ];
}

/** Such as `Mon Jan  2 15:04:05 UTC 2006`. @see https://pkg.go.dev/time#UnixDate */
function unixDate(at: Date): string {
  const [weekday = "", day = "", month = "", year = "", time = ""] = at.toUTCString().replace(",", "").split(" ");
  return `${weekday} ${month} ${String(Number(day)).padStart(2)} ${time} UTC ${year}`;
}

function hoursAndMinutes(seconds: number): string {
  const two = (amount: number) => String(amount).padStart(2, "0");
  return `${Math.floor(seconds / 3600)} hr ${two(Math.floor(seconds / 60) % 60)} min ${two(seconds % 60)} sec`;
}

/** /flagz: the flags of the command line. */
export function flagz({ flags, clock }: Pick<KubeletServerDeps, "flags" | "clock">): Handler {
  const separator = separators[Math.floor(clock.jitter(0, separators.length))] ?? separators[0];
  const sorted = () => Object.entries(flags).sort(([one], [other]) => (one < other ? -1 : 1));
  return zpage({
    name: "flagz",
    kind: "Flagz",
    text: () =>
      heading("flagz") +
      sorted()
        .map(([name, value]) => `${name}${separator}${value}\n`)
        .join(""),
    fields: () => (Object.keys(flags).length === 0 ? {} : { flags: Object.fromEntries(sorted()) }),
  });
}
