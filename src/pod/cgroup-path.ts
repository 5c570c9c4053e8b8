import type { QosClass } from "./qos.ts";

export type CgroupDriver = "cgroupfs" | "systemd";

export interface CgroupLayout {
  readonly driver: CgroupDriver;
  /** KubeletConfiguration.cgroupRoot; empty or `/` for the top. */
  readonly root: string;
  /** KubeletConfiguration.cgroupsPerQOS: false puts all pods where the runtime puts them. */
  readonly perQos: boolean;
}

/** The parent of a pod's cgroup in the runtime's words: `/kubepods/burstable/pod<uid>`, or under systemd
 *  `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice`. Guaranteed pods sit directly under kubepods.
 *  @see https://kubernetes.io/docs/concepts/architecture/cgroups/ */
export function podCgroup(uid: string, qos: QosClass, layout: CgroupLayout): string {
  return layout.perQos ? cgroupPath([...tierNames(qos, layout), `pod${uid}`], layout.driver) : "";
}

/** The cgroup that the pods of one quality of service class share. */
export function tierCgroup(qos: QosClass, layout: CgroupLayout): string {
  return cgroupPath(tierNames(qos, layout), layout.driver);
}

/** The cgroup that all pods share. */
export function podsCgroup(layout: CgroupLayout): string {
  return tierCgroup("Guaranteed", layout);
}

function tierNames(qos: QosClass, { root }: CgroupLayout): string[] {
  return [...split(root), "kubepods", ...(qos === "Guaranteed" ? [] : [qos.toLowerCase()])];
}

/** Names of a cgroup's ancestors and itself, from its path: of `/kubepods.slice/kubepods-burstable.slice` under systemd, where the last
 *  part says it all, `kubepods` and `burstable`. */
export function cgroupNames(path: string, driver: CgroupDriver): readonly string[] {
  const parts = split(path);
  if (driver === "cgroupfs") return parts;
  const slice = parts.at(-1)?.replace(/\.slice$/, "") ?? "";
  return slice.split("-").flatMap((name) => (name === "" ? [] : [name.replaceAll("_", "-")]));
}

/** Names as the kubelet's messages have them: `["kubepods" "burstable"]`. */
export function quotedNames(names: readonly string[]): string {
  return `[${names.map((name) => JSON.stringify(name)).join(" ")}]`;
}

function split(path: string): readonly string[] {
  return path.split("/").filter((name) => name !== "");
}

/** Path of a cgroup by the names of its ancestors and itself. A `-` within a name is escaped under systemd, where it separates
 *  levels. @see https://www.freedesktop.org/software/systemd/man/latest/systemd.slice.html */
export function cgroupPath(names: readonly string[], driver: CgroupDriver): string {
  if (driver === "cgroupfs" || names.length === 0) return `/${names.join("/")}`;
  const escaped = names.map((name) => name.replaceAll("-", "_"));
  return escaped.map((_, depth) => `/${escaped.slice(0, depth + 1).join("-")}.slice`).join("");
}

/** Path of a cgroup right below another of the same driver. */
export function cgroupBelow(path: string, name: string, driver: CgroupDriver): string {
  if (driver === "cgroupfs") return `${path}/${name}`;
  const above = path.slice(path.lastIndexOf("/") + 1, -".slice".length);
  return `${path}/${above}-${name.replaceAll("-", "_")}.slice`;
}
