import type { ReplicaReport } from "../messages.ts";
import { make } from "./dom.ts";
import { count, known } from "./format.ts";
import type { FleetModel, Model, Scope } from "./model.ts";
import { type MachineRow, machineRowsOf, searchedInMachine } from "./rows.ts";
import { type Column, createTable } from "./table.ts";

const columns: readonly Column<MachineRow>[] = [
  { title: "Machine", by: "name", text: ({ name }) => name },
  { title: "Served by", by: "owner", text: ({ owner }) => owner || "nobody" },
  { title: "Status", by: "status", text: ({ status }) => status },
  { title: "Pods", by: "pods", text: ({ pods }) => known(pods, String) },
  { title: "Address", by: "address", text: ({ address }) => address || "–" },
  { title: "Why", by: "why", text: ({ why }) => why, isLong: true },
];

/** Creates the section about the release's replicas and the machines that other replicas serve, or nobody. It is shown with all nodes. */
export function createMachines(into: HTMLElement) {
  const replicas = make("p", { class: "chips" });
  const rows = make("div");
  into.replaceChildren(replicas, rows);
  const table = createTable<MachineRow>(rows, {
    title: "Other machines of the release",
    filter: { placeholder: "name, replica, status or address", label: "Filter machines" },
    columns,
    searched: searchedInMachine,
    // Those that need attention first.
    sorting: { by: "bad", down: true },
  });
  return {
    draw(model: Model, scope: Scope) {
      const { fleet } = model;
      into.hidden = !fleet || scope.node !== undefined;
      if (!fleet || into.hidden) return;
      replicas.replaceChildren(...replicaChips(fleet));
      rows.hidden = fleet.names.length === 0;
      table.draw(model, scope, machineRowsOf(fleet));
    },
  };
}

function replicaChips({ replica: own, current, replicas }: FleetModel): readonly Node[] {
  const chip = ({ name, leaving, machines }: ReplicaReport) =>
    make("span", {
      class: "pill",
      text: [
        name === own ? `${name} (this one)` : name,
        count(machines, "machine"),
        ...(leaving ? ["shutting down"] : []),
      ].join(" · "),
    });
  const stale = make("span", { class: "pill bad", text: "as last known: the API server does not answer" });
  return [make("b", { text: count(replicas.length, "replica") }), ...replicas.map(chip), ...(current ? [] : [stale])];
}
