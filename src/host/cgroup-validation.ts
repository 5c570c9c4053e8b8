import { ignoreNotFound } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { cgroupMount as mount } from "./cgroup-inheritance.ts";
import { exists } from "./exists.ts";

/** v2 controllers that the kubelet needs in a cgroup whose limits it sets. */
const requiredControllers: readonly string[] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];

/** A cgroup's path from the root, and its name in messages. */
export interface NamedCgroup {
  readonly path: string;
  readonly name: string;
}

/** Validates that limits can be set in a cgroup created by others; returns the kubelet's message, or undefined if valid. With
 *  v1 the cgroup must exist in each hierarchy.
 *  @param roots of the hierarchies. */
export async function validateV1(
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

/** The same with v2: the cgroup must have all of the kernel's controllers that the kubelet uses, which its parent enables. */
export async function validateV2(
  host: Host,
  { path, name }: NamedCgroup,
  signal: AbortSignal,
): Promise<string | undefined> {
  const fileOf = (directory: string) => `${mount}${directory}/cgroup.controllers`;
  const [all, own] = await Promise.all(
    [fileOf(""), fileOf(path)].map((file) => ignoreNotFound(host.fs.readFile(file, { signal }))),
  );
  if (own === undefined)
    return `could not read controllers for cgroup ${name}: open ${fileOf(path)}: no such file or directory`;
  const [present, enabled] = [all, own].map((text) => new Set(text?.toString("utf8").trim().split(/\s+/)));
  const missing = requiredControllers.filter((controller) => present?.has(controller) && !enabled?.has(controller));
  return missing.length > 0 ? `cgroup ${name} has some missing controllers: ${missing.join(", ")}` : undefined;
}
