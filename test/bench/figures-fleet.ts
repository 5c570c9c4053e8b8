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

/** A figure with a value for each machine. */
const each = (id: string, title: string, unit: string, limit: number): Figure => ({
  ...one(id, title, unit, limit),
  many: true,
});

/** What `make bench PROVIDER=fleet` measures. */
export const fleetFigures: readonly Figure[] = [
  one("start", "all applied at once, until the last is Ready", "s"),
  one("memory-empty", "resident memory of all replicas, a machine without pods", "MiB"),
  one("cpu", "idle CPU of all replicas", "% of a core", 100),
  one("requests", "idle requests to the API server", "a second"),
  each("planned", "a replica is shut down: a machine is not served for", "s", 2),
  one("planned-all", "until its last machine is served again", "s"),
  each("failover", "a replica is killed: a machine is served again after", "s", 17),
  one("failover-99", "99 of 100 machines are served again after", "s", 30),
  one("pods", "ten pods for each machine, all of one replica, until the last is Running", "s"),
  one("memory", "resident memory, a machine with its ten pods", "MiB", 3),
];
