import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { V1Deployment, V1Job, V1ObjectMeta, V1Pod, V1PodSpec } from "@kubernetes/client-node";
import { parseAllDocuments } from "yaml";
import { chart } from "./helm.ts";

/** A Kubernetes object as a chart renders it. */
export interface Rendered {
  readonly kind: string;
  readonly metadata: V1ObjectMeta & { readonly name: string };
}

/** Arguments of `helm template` for a release `edge` in the namespace `graftlet`. */
export function templateArguments(...values: readonly string[]): string[] {
  return ["template", "edge", chart, "--namespace", "graftlet", ...values];
}

/** The files of values of which golden renders are kept: their names and paths. */
export function valueFiles(): { readonly name: string; readonly path: string; readonly golden: string }[] {
  const folder = join(import.meta.dirname, "..", "contract", "charts");
  return readdirSync(join(folder, "values")).map((file) => ({
    name: file.replace(/\.yaml$/, ""),
    path: join(folder, "values", file),
    golden: join(folder, "golden", file),
  }));
}

/** The cases for chart-testing, which are part of the chart: their names and paths. */
export function caseFiles(): { readonly name: string; readonly path: string }[] {
  const folder = join(chart, "ci");
  return readdirSync(folder).map((file) => ({ name: `ci/${file}`, path: join(folder, file) }));
}

/** A rendered text as golden files have it: without empty lines, and without CustomResourceDefinitions, which are long and the same in all
 *  releases. */
export function goldenOf(text: string): string {
  return text
    .split(/^(?=---$)/m)
    .filter((document) => !/^kind: CustomResourceDefinition$/m.test(document))
    .join("")
    .replaceAll(/[ \t]+$/gm, "")
    .replaceAll(/\n{2,}/g, "\n");
}

/** The objects in a rendered text. */
export function objectsIn(text: string): Rendered[] {
  return parseAllDocuments(text)
    .map((document) => document.toJS() as Rendered | null)
    .filter((object) => object !== null);
}

/** Those of a kind. */
export function ofKind<T>(objects: readonly Rendered[], kind: string): T[] {
  return objects.filter((object) => object.kind === kind) as T[];
}

/** What an object says of a pod that it is or makes: its labels and spec; undefined when it makes none. */
export function podOf(object: Rendered): { labels: Readonly<Record<string, string>>; spec: V1PodSpec } | undefined {
  if (!["Pod", "Job", "Deployment"].includes(object.kind)) return undefined;
  const pod = object.kind === "Pod" ? (object as V1Pod) : (object as V1Job | V1Deployment).spec?.template;
  return pod?.spec && { labels: pod.metadata?.labels ?? {}, spec: pod.spec };
}
