import { readFile, readdir } from "node:fs/promises";
import type { Clock } from "../lib/clock.ts";
import type { Metrics } from "./registry.ts";

/** Creates the process metrics, with the names of Prometheus' clients. If a process serves several nodes, each shows the same values.
 *  @see https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics */
export function processMetrics(metrics: Metrics, clock: Clock): void {
  metrics.total("process_cpu_seconds_total", "User and system CPU time of this process, in seconds.", () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  });
  single(
    metrics,
    "process_open_fds",
    "Number of open file descriptors.",
    async () => (await readdir("/proc/self/fd")).length,
  );
  single(metrics, "process_max_fds", "Maximum number of open file descriptors.", async () =>
    numberIn(await readFile("/proc/self/limits", "utf8"), /^Max open files\s+(\d+)/m),
  );
  single(metrics, "process_resident_memory_bytes", "Resident memory of this process, in bytes.", () =>
    process.memoryUsage.rss(),
  );
  single(
    metrics,
    "process_virtual_memory_bytes",
    "Virtual memory size of this process, in bytes.",
    async () => numberIn(await readFile("/proc/self/status", "utf8"), /^VmSize:\s+(\d+) kB/m) * 1024,
  );
  const heap = (part: "heapTotal" | "heapUsed" | "external") => () => process.memoryUsage()[part];
  single(metrics, "nodejs_heap_size_total_bytes", "Size of the JavaScript heap, in bytes.", heap("heapTotal"));
  single(metrics, "nodejs_heap_size_used_bytes", "Used part of the JavaScript heap, in bytes.", heap("heapUsed"));
  single(
    metrics,
    "nodejs_external_memory_bytes",
    "Memory of JavaScript objects outside the heap, in bytes.",
    heap("external"),
  );
  single(
    metrics,
    "nodejs_active_resources_total",
    "Active timers, connections and other resources of this process; comparable to a kubelet's goroutines.",
    () => process.getActiveResourcesInfo().length,
  );
  processStart(metrics, clock);
}

/** Creates the metric of the process's start time, separately because every endpoint shows it. */
export function processStart(metrics: Metrics, clock: Clock): void {
  single(metrics, "process_start_time_seconds", "Start time of this process, in seconds since the Unix epoch.", () =>
    Math.round(clock.now() / 1000 - process.uptime()),
  );
}

function single(metrics: Metrics, name: string, help: string, value: () => number | Promise<number>): void {
  metrics.gauge(name, help, { values: async () => [[{}, await value()]] });
}

function numberIn(text: string, pattern: RegExp): number {
  return Number(pattern.exec(text)?.[1] ?? Number.NaN);
}
