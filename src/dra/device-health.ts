import { type DeviceHealth as ReportedHealth, HealthStatus } from "../gen/dra-health.ts";
import type { Clock } from "../lib/clock.ts";

export interface DeviceId {
  readonly poolName: string;
  readonly deviceName: string;
}

/** Health of a device, as in a pod's status. */
export interface DeviceHealth {
  readonly health: "Healthy" | "Unhealthy" | "Unknown";
  /** The driver's explanation; may be empty. */
  readonly message: string;
}

/** Health of devices, as drivers report it. A report expires: a device that is no longer reported has unknown health. */
export type DeviceHealthRecords = ReturnType<typeof createDeviceHealthRecords>;

interface HealthRecord extends DeviceHealth, DeviceId {
  readonly timeoutMs: number;
  /** Time of the report on the monotonic clock, milliseconds. */
  readonly reportedAt: number;
}

/** Time after which a report expires if the driver sets none, milliseconds: the kubelet's. */
const defaultTimeoutMs = 30_000;
/** Longest message in a pod's status, bytes. (ResourceHealthMessageMaxLength) */
const maxMessageBytes = 1_024;
/** Maximum number of devices of a driver whose health is kept. */
const maxDevices = 10_000;
const unknown: DeviceHealth = { health: "Unknown", message: "" };

/** Creates an empty record of health. (kubelet, cm/dra/healthinfo.go) */
export function createDeviceHealthRecords(clock: Pick<Clock, "monotonic">) {
  const drivers = new Map<string, ReadonlyMap<string, HealthRecord>>();
  const hasExpired = ({ reportedAt, timeoutMs }: HealthRecord) => clock.monotonic() - reportedAt > timeoutMs;
  return {
    /** Records a driver's report. @returns the devices whose health, message or timeout has changed. */
    update(driver: string, devices: readonly ReportedHealth[]): readonly DeviceId[] {
      const before = drivers.get(driver) ?? new Map<string, HealthRecord>();
      const reported = new Map(devices.slice(0, maxDevices).map((device) => recordOf(device, clock.monotonic())));
      const changed = [...reported].filter(([key, record]) => !isSame(before.get(key), record));
      const missing = [...before].filter(([key]) => !reported.has(key));
      const expired = missing.filter(([, record]) => hasExpired(record));
      const kept = missing.filter(([, record]) => !hasExpired(record)).slice(0, maxDevices - reported.size);
      drivers.set(driver, new Map([...kept, ...reported]));
      return [...changed, ...expired].map(([, record]) => record);
    },
    get(driver: string, device: DeviceId): DeviceHealth {
      const record = drivers.get(driver)?.get(keyOf(device));
      return record && !hasExpired(record) ? record : unknown;
    },
    /** Drops a driver's reports. @returns the devices that it had reported. */
    remove(driver: string): readonly DeviceId[] {
      const known = [...(drivers.get(driver)?.values() ?? [])];
      drivers.delete(driver);
      return known;
    },
  };
}

function keyOf({ poolName, deviceName }: DeviceId): string {
  return `${poolName}/${deviceName}`;
}

function recordOf(reported: ReportedHealth, reportedAt: number): [string, HealthRecord] {
  const { poolName = "", deviceName = "" } = reported.device ?? {};
  const seconds = Number(reported.healthCheckTimeoutSeconds);
  const record: HealthRecord = {
    poolName,
    deviceName,
    health: healthNames[reported.health] ?? "Unknown",
    message: truncated(reported.message),
    timeoutMs: seconds > 0 ? seconds * 1000 : defaultTimeoutMs,
    reportedAt,
  };
  return [keyOf(record), record];
}

const healthNames: Readonly<Partial<Record<HealthStatus, DeviceHealth["health"]>>> = {
  [HealthStatus.HEALTHY]: "Healthy",
  [HealthStatus.UNHEALTHY]: "Unhealthy",
};

function isSame(before: HealthRecord | undefined, { health, message, timeoutMs }: HealthRecord): boolean {
  return before?.health === health && before.message === message && before.timeoutMs === timeoutMs;
}

function truncated(message: string): string {
  const bytes = Buffer.from(message);
  if (bytes.length <= maxMessageBytes) return message;
  // A character that would be cut in two is left out.
  const whole = new TextDecoder().decode(bytes.subarray(0, maxMessageBytes - 3), { stream: true });
  return `${whole}...`;
}
