import { readFile, readdir } from "node:fs/promises";
import type { Clock } from "../lib/clock.ts";
import type { Metrics } from "./registry.ts";

/** Process metrics with the names of Prometheus' clients. The process may serve several nodes: each shows the same values.
 *  @see https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics */
export function processMetrics(metrics: Metrics, clock: Clock): void {
  metrics.total("process_cpu_seconds_total", "CPU time of this process, in user and in system mode.", () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  });
  single(
    metrics,
    "process_open_fds",
    "File descriptors that are open.",
    async () => (await readdir("/proc/self/fd")).length,
  );
  single(metrics, "process_max_fds", "File descriptors that may be open.", async () =>
    numberIn(await readFile("/proc/self/limits", "utf8"), /^Max open files\s+(\d+)/m),
  );
  single(metrics, "process_resident_memory_bytes", "Memory that this process has, bytes.", () =>
    process.memoryUsage.rss(),
  );
  single(
    metrics,
    "process_virtual_memory_bytes",
    "Addresses that this process has, bytes.",
    async () => numberIn(await readFile("/proc/self/status", "utf8"), /^VmSize:\s+(\d+) kB/m) * 1024,
  );
  const heap = (part: "heapTotal" | "heapUsed" | "external") => () => process.memoryUsage()[part];
  single(metrics, "nodejs_heap_size_total_bytes", "Size of the JavaScript heap.", heap("heapTotal"));
  single(metrics, "nodejs_heap_size_used_bytes", "What of the JavaScript heap is used.", heap("heapUsed"));
  single(
    metrics,
    "nodejs_external_memory_bytes",
    "Memory that JavaScript objects have outside the heap.",
    heap("external"),
  );
  single(
    metrics,
    "nodejs_active_resources_total",
    "Timers, connections and the like that this process waits for: what goroutines are to a kubelet.",
    () => process.getActiveResourcesInfo().length,
  );
  processStart(metrics, clock);
}

/** Start time of the process, separate because every endpoint shows it. */
export function processStart(metrics: Metrics, clock: Clock): void {
  single(metrics, "process_start_time_seconds", "When this process started, Unix time.", () =>
    Math.round(clock.now() / 1000 - process.uptime()),
  );
}

function single(metrics: Metrics, name: string, help: string, value: () => number | Promise<number>): void {
  metrics.gauge(name, help, { values: async () => [[{}, await value()]] });
}

function numberIn(text: string, pattern: RegExp): number {
  return Number(pattern.exec(text)?.[1] ?? Number.NaN);
}
