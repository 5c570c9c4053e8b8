import type { DockerClient } from "./client.ts";

/** The part of the daemon's `GET /info` that this provider uses. */
export interface EngineInfo {
  /** The daemon's data directory on the target. */
  readonly DockerRootDir: string;
  /** Facts about the storage driver, by name; `driver-type` is present with containerd's image store. */
  readonly DriverStatus?: readonly (readonly [string, string])[] | null;
  /** Bytes. */
  readonly MemTotal: number;
  /** `x86_64`, `aarch64`, … */
  readonly Architecture: string;
  /** The daemon's clock, RFC 3339 with nanoseconds. */
  readonly SystemTime: string;
  /** Identifies the daemon for the lifetime of its data directory. */
  readonly ID: string;
  readonly ServerVersion: string;
  /** `cgroupfs`, `systemd`; `none` when the daemon creates no cgroups (rootless without delegation). */
  readonly CgroupDriver: string;
  /** `name=seccomp,profile=default`, `name=apparmor`, `name=rootless`, … */
  readonly SecurityOptions?: readonly string[] | null;
  readonly MemoryLimit: boolean;
  readonly CpuCfsQuota: boolean;
  /** Directories of CDI specs; absent before Docker 25, empty if CDI is disabled. */
  readonly CDISpecDirs?: readonly string[] | null;
  /** OCI runtimes by name. */
  readonly Runtimes?: Readonly<Record<string, unknown>> | null;
}

/** @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/System/operation/SystemInfo */
export function engineInfo({ docker }: { readonly docker: DockerClient }, signal: AbortSignal): Promise<EngineInfo> {
  return docker.request<EngineInfo>({ path: "/info" }, signal);
}
