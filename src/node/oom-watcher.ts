import { readLines } from "../host/command-lines.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Service } from "../lib/service-group.ts";
import type { EventSink, WaitForTarget } from "../pipeline.ts";
import { nodeReference } from "../pod/reference.ts";
import type { Host } from "../seams/host.ts";
import { createOomParser } from "./oom-lines.ts";
import { script } from "../seams/command.ts";

export interface OomWatcherDeps {
  readonly host: Pick<Host, "spawn">;
  readonly nodeName: string;
  readonly events: EventSink;
  readonly waitForTarget?: WaitForTarget;
  readonly clock: Clock;
  readonly log: Logger;
}

const listening = "listening";
/** Maximum size of a record of the kernel's log, bytes. */
const maxLineBytes = 8 << 10;
/** Delay before the kernel's log is read again after its reader has ended, milliseconds. */
const retryDelayMs = 10_000;

/** Prints new records of the kernel's log: existing ones are discarded in the first second. The reader ends with its standard input,
 *  also if its parent is killed. */
const reading = `
exec 3</dev/kmsg
command -v timeout >/dev/null || { echo "timeout: no such program" >&2; exit 1; }
timeout 1 dd bs=8192 <&3 >/dev/null 2>&1
dd bs=8192 <&3 2>/dev/null &
echo ${listening} >&2
exec >/dev/null 2>&1
read -r nothing
kill $!`;

/** Emits an event on the Node for each process that the kernel ended because the whole machine was out of memory; kills in a cgroup that
 *  reached its limit show in the container's status. If the kernel's log cannot be read, that is logged once and retried.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior */
export function createOomWatcher(deps: OomWatcherDeps): Service {
  const { host, nodeName, events, log } = deps;
  let told = false;
  const failed = (why: string) => {
    if (!told) log.warn({ why }, "cannot read the target's kernel log; SystemOOM events are unavailable");
    told = true;
  };
  const onLine = (parse: ReturnType<typeof createOomParser>) => (line: string) => {
    const kill = parse(line);
    if (kill?.cgroup !== "/") return;
    const victim = kill.process && kill.pid ? `, victim process: ${kill.process}, pid: ${kill.pid}` : "";
    events.event(nodeReference(nodeName), "Warning", "SystemOOM", `System OOM encountered${victim}`);
  };
  const watch = async (signal: AbortSignal) => {
    try {
      const reader = await host.spawn(script(reading), signal);
      const said = await readLines(reader, onLine(createOomParser()), signal, maxLineBytes);
      if (!signal.aborted && said !== listening) failed(said);
    } catch (error) {
      if (signal.aborted || hasCode(error, "unavailable")) return;
      failed(messageOf(error));
    }
  };
  return runPeriodically({ ...deps, name: "oom-watcher", intervalMs: retryDelayMs }, watch);
}
