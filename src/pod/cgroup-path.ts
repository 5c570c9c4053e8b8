import type { QosClass } from "./qos.ts";

export type CgroupDriver = "cgroupfs" | "systemd";

export interface CgroupLayout {
  readonly driver: CgroupDriver;
  /** KubeletConfiguration.cgroupRoot; empty or `/` for the top. */
  readonly root: string;
  /** KubeletConfiguration.cgroupsPerQOS: if false, the runtime chooses the pods' cgroups. */
  readonly perQos: boolean;
}

/** A pod's cgroup parent as passed to the runtime: `/kubepods/burstable/pod<uid>`, or with systemd
 *  `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice`. Guaranteed pods are directly below kubepods.
 *  @see https://kubernetes.io/docs/concepts/architecture/cgroups/ */
export function podCgroup(uid: string, qos: QosClass, layout: CgroupLayout): string {
  return layout.perQos ? cgroupPath([...qosCgroupNames(qos, layout), `pod${uid}`], layout.driver) : "";
}

/** The cgroup of a QoS class. */
export function qosCgroup(qos: QosClass, layout: CgroupLayout): string {
  return cgroupPath(qosCgroupNames(qos, layout), layout.driver);
}

/** The kubepods cgroup, the parent of all pods. */
export function kubepodsCgroup(layout: CgroupLayout): string {
  return qosCgroup("Guaranteed", layout);
}

function qosCgroupNames(qos: QosClass, { root }: CgroupLayout): string[] {
  return [...split(root), "kubepods", ...(qos === "Guaranteed" ? [] : [qos.toLowerCase()])];
}

/** Names of a cgroup's ancestors and itself, from its path. With systemd, the last segment contains all of them:
 *  `/kubepods.slice/kubepods-burstable.slice` results in `kubepods` and `burstable`. */
export function cgroupNames(path: string, driver: CgroupDriver): readonly string[] {
  const parts = split(path);
  if (driver === "cgroupfs") return parts;
  const slice = parts.at(-1)?.replace(/\.slice$/, "") ?? "";
  return slice.split("-").flatMap((name) => (name === "" ? [] : [name.replaceAll("_", "-")]));
}

/** Names as in the kubelet's messages: `["kubepods" "burstable"]`. */
export function quotedNames(names: readonly string[]): string {
  return `[${names.map((name) => JSON.stringify(name)).join(" ")}]`;
}

function split(path: string): readonly string[] {
  return path.split("/").filter((name) => name !== "");
}

/** Path of a cgroup from the names of its ancestors and itself. With systemd, `-` separates levels and is escaped within a name. @see
 *  https://www.freedesktop.org/software/systemd/man/latest/systemd.slice.html */
export function cgroupPath(names: readonly string[], driver: CgroupDriver): string {
  if (driver === "cgroupfs" || names.length === 0) return `/${names.join("/")}`;
  const escaped = names.map((name) => name.replaceAll("-", "_"));
  return escaped.map((_, depth) => `/${escaped.slice(0, depth + 1).join("-")}.slice`).join("");
}

/** Path of a child cgroup, with the same driver. */
export function cgroupBelow(path: string, name: string, driver: CgroupDriver): string {
  if (driver === "cgroupfs") return `${path}/${name}`;
  const above = path.slice(path.lastIndexOf("/") + 1, -".slice".length);
  return `${path}/${above}-${name.replaceAll("-", "_")}.slice`;
}
