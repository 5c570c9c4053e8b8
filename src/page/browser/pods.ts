import { age, bytes, bytesPerSecond, cores, known } from "./format.ts";
import type { Model, Scope } from "./model.ts";
import { type Row, rowsOf, searchedInPod } from "./rows.ts";
import { type Column, createTable } from "./table.ts";

const columns: readonly Column<Row>[] = [
  { title: "Pod", by: "name", text: ({ namespace, name }) => `${namespace}/${name}` },
  { title: "Node", by: "node", text: ({ node }) => node },
  { title: "Status", by: "status", text: ({ status }) => status },
  { title: "Ready", by: "ready", text: ({ ready, of }) => `${ready}/${of}` },
  { title: "Restarts", by: "restarts", text: ({ restarts }) => String(restarts) },
  { title: "CPU", by: "cpu", text: ({ cpu }) => known(cpu, cores) },
  { title: "Memory", by: "memory", text: ({ memory }) => known(memory, bytes) },
  { title: "Received", by: "rx", text: ({ rx }) => known(rx, bytesPerSecond) },
  { title: "Sent", by: "tx", text: ({ tx }) => known(tx, bytesPerSecond) },
  { title: "Disk", by: "disk", text: ({ disk }) => known(disk, bytes) },
  { title: "Age", by: "since", text: ({ since }, { now }) => (since > 0 ? age(now - since) : "–") },
];

/** Creates the table of pods. */
export function createPodRows(into: HTMLElement, choose: (scope: Scope) => void) {
  const table = createTable<Row>(into, {
    title: "Pods",
    filter: { placeholder: "name, namespace, node or status", label: "Filter pods" },
    columns,
    searched: searchedInPod,
    sorting: { by: "cpu", down: true },
    isChosen: ({ uid }, { pod }) => uid === pod,
    choose: ({ node, uid }) => choose({ node, pod: uid }),
  });
  return { draw: (model: Model, scope: Scope) => table.draw(model, scope, rowsOf(model, scope)) };
}
