import type { DockerClient } from "./client.ts";

/** The part of the daemon's `GET /info` that this provider uses. */
export interface EngineInfo {
  /** The daemon's data directory on the target. */
  readonly DockerRootDir: string;
  /** Facts about the storage driver, by name; `driver-type` is present with containerd's image store. */
  readonly DriverStatus?: readonly (readonly [string, string])[] | null;
  /** The machine's memory, bytes. */
  readonly MemTotal: number;
  /** Architecture, such as `x86_64` or `aarch64`. */
  readonly Architecture: string;
  /** The daemon's clock, RFC 3339 with nanoseconds. */
  readonly SystemTime: string;
  /** ID of the daemon, which is stored in its data directory. */
  readonly ID: string;
  readonly ServerVersion: string;
  /** `cgroupfs` or `systemd`; `none` if the daemon creates no cgroups (rootless without delegation). */
  readonly CgroupDriver: string;
  /** Options such as `name=seccomp,profile=default`, `name=apparmor` or `name=rootless`. */
  readonly SecurityOptions?: readonly string[] | null;
  readonly MemoryLimit: boolean;
  readonly CpuCfsQuota: boolean;
  /** Directories of CDI specs; absent before Docker 25, empty if the daemon injects no CDI devices. */
  readonly CDISpecDirs?: readonly string[] | null;
  /** OCI runtimes by name. */
  readonly Runtimes?: Readonly<Record<string, unknown>> | null;
}

/** @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/System/operation/SystemInfo */
export function engineInfo({ docker }: { readonly docker: DockerClient }, signal: AbortSignal): Promise<EngineInfo> {
  return docker.request<EngineInfo>({ path: "/info" }, signal);
}
