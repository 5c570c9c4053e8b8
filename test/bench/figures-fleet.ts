import { sharedByThree } from "./bench-fleet.ts";
import { atMost } from "./reach.ts";
import type { Figure } from "./report.ts";

const one = (id: string, title: string, unit: string, limit?: number): Figure => ({
  id,
  title,
  unit,
  many: false,
  reach: limit === undefined ? [] : [atMost(limit, sharedByThree, unit)],
});

/** What `make bench PROVIDER=fleet` measures. */
export const fleetFigures: readonly Figure[] = [
  one("start", "all applied at once, until the last is Ready", "s"),
  one("memory", "resident memory of all replicas, a machine", "MiB", 3),
  one("cpu", "idle CPU of all replicas", "% of a core", 100),
  one("requests", "idle requests to the API server", "a second"),
  {
    id: "planned",
    title: "a replica is shut down: a machine is not served for",
    unit: "s",
    many: true,
    reach: [atMost(2, sharedByThree, "s")],
  },
  one("planned-all", "until its last machine is served again", "s"),
  {
    id: "failover",
    title: "a replica is killed: a machine is served again after",
    unit: "s",
    many: true,
    reach: [atMost(17, sharedByThree, "s")],
  },
  one("failover-99", "99 of 100 machines are served again after", "s", 30),
];
