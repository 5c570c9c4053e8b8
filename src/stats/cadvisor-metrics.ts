import { type MetricRow, metricRows } from "./cadvisor-rows.ts";
import { cpuSeries, ioSeries, memorySeries, otherSeries, type Series } from "./cadvisor-series.ts";
import type { DiskStats } from "./disk-stats.ts";
import { type Family, exposition, type Point } from "./exposition.ts";
import type { Machine } from "./machine.ts";
import type { Sample } from "./sample.ts";

export interface CadvisorInput {
  /** Undefined if nothing could be measured. */
  readonly sample: Sample | undefined;
  readonly disk: DiskStats | undefined;
  readonly machine: Machine;
}

/** /metrics/cadvisor: the machine, pods and containers as shown by a kubelet's cAdvisor, with its names and labels.
 *  @see https://github.com/google/cadvisor/blob/master/docs/storage/prometheus.md */
export function cadvisorMetrics({ sample, disk, machine }: CadvisorInput): string {
  const rows = sample ? metricRows(sample, disk) : [];
  const failed: Family = {
    name: "container_scrape_error",
    help: "1 if there was an error while measuring containers, 0 otherwise.",
    type: "gauge",
    samples: [{ labels: {}, value: sample ? 0 : 1 }],
  };
  const all = [...otherSeries, ...cpuSeries, ...memorySeries, ...ioSeries];
  const families = sample ? all.map((series) => family(series, rows, sample)) : [];
  return exposition([machineInfo(machine), failed, ...families, ...machineFamilies(machine)]);
}

function family({ name, help, type, timeless, values }: Series, rows: readonly MetricRow[], sample: Sample): Family {
  const { at } = sample;
  const samples = rows.flatMap((row) =>
    values(row, sample).flatMap(([extra, value]): readonly Point[] =>
      value === undefined ? [] : [{ labels: { ...row.labels, ...extra }, value, ...(!timeless && { at }) }],
    ),
  );
  return { name, help, type, samples };
}

function machineInfo({ kernelVersion, osImage }: Machine): Family {
  const labels = {
    kernelVersion,
    osVersion: osImage,
    dockerVersion: "",
    cadvisorVersion: "",
    cadvisorRevision: "",
  };
  return {
    name: "cadvisor_version_info",
    help: "The machine's kernel and operating system versions, as labels; always 1.",
    type: "gauge",
    samples: [{ labels, value: 1 }],
  };
}

function machineFamilies(machine: Machine): readonly Family[] {
  const { machineID, systemUUID, bootID } = machine;
  const labels = { boot_id: bootID, machine_id: machineID, system_uuid: systemUUID };
  const gauge = (name: string, help: string, value: number, by: readonly object[] = [{}]): Family => ({
    name: `machine_${name}`,
    help,
    type: "gauge",
    samples: by.map((more) => ({ labels: { ...labels, ...more }, value })),
  });
  const modes = ["memory_mode", "app_direct_mode"].map((mode) => ({ mode }));
  return [
    gauge("cpu_cores", "Logical processors.", machine.cpus),
    gauge("cpu_physical_cores", "Cores.", machine.cores),
    gauge("cpu_sockets", "Number of CPU sockets.", machine.sockets),
    gauge("cpu_books", "CPU books; 0 except on mainframes.", machine.books),
    gauge("cpu_drawers", "CPU drawers; 0 except on mainframes.", machine.drawers),
    gauge("memory_bytes", "Memory, in bytes.", machine.memoryBytes),
    gauge("swap_bytes", "Swap, in bytes.", machine.swapBytes),
    // Non-volatile memory is not detected, as in the kubelet.
    gauge("nvm_capacity", "Non-volatile memory by mode, in bytes; always 0.", 0, modes),
    gauge("nvm_avg_power_budget_watts", "Power budget of non-volatile memory; always 0.", 0),
    {
      name: "machine_scrape_error",
      help: "1 if there was an error while reading the machine.",
      type: "gauge",
      samples: [{ labels: {}, value: 0 }],
    },
  ];
}
