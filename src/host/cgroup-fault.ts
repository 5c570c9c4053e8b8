import { unlessGone } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { cgroupMount as mount } from "./cgroup-inheritance.ts";
import { exists } from "./exists.ts";

/** Controllers of version 2 that the kubelet needs of a cgroup whose limits it sets. */
const needed: readonly string[] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];

/** A cgroup by its path from the root, and as messages name it. */
export interface NamedCgroup {
  readonly path: string;
  readonly name: string;
}

/** Why limits cannot be set in a cgroup that others make, in the kubelet's words; undefined when they can. With version 1 each
 *  hierarchy has to have it.
 *  @param roots of the hierarchies. */
export async function faultV1(
  host: Host,
  roots: readonly string[],
  { path, name }: NamedCgroup,
  signal: AbortSignal,
): Promise<string | undefined> {
  const paths = roots.map((root) => root + path);
  const there = await Promise.all(paths.map((each) => exists(host.fs, each, signal)));
  const missing = paths.filter((_, index) => !there[index]);
  return missing.length > 0 ? `cgroup ${name} has some missing paths: ${missing.join(", ")}` : undefined;
}

/** The same with version 2: the cgroup has to have all of the kernel's controllers that the kubelet uses, which its parent hands
 *  down. */
export async function faultV2(
  host: Host,
  { path, name }: NamedCgroup,
  signal: AbortSignal,
): Promise<string | undefined> {
  const fileOf = (directory: string) => `${mount}${directory}/cgroup.controllers`;
  const [all, own] = await Promise.all(
    [fileOf(""), fileOf(path)].map((file) => unlessGone(host.fs.readFile(file, { signal }))),
  );
  if (own === undefined)
    return `could not read controllers for cgroup ${name}: open ${fileOf(path)}: no such file or directory`;
  const [present, enabled] = [all, own].map((text) => new Set(text?.toString("utf8").trim().split(/\s+/)));
  const missing = needed.filter((controller) => present?.has(controller) && !enabled?.has(controller));
  return missing.length > 0 ? `cgroup ${name} has some missing controllers: ${missing.join(", ")}` : undefined;
}
