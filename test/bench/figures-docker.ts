import { containerdPath, dockerLoop } from "./bench-docker.ts";
import { atLeastTimes, atMost, atMostTimes } from "./reach.ts";
import type { Figure } from "./report.ts";

/** What `make bench PROVIDER=docker` measures. */
export const dockerFigures: readonly Figure[] = [
  {
    id: "start",
    title: "create → Running, one by one",
    unit: "ms",
    many: true,
    reach: [atMostTimes(1.25, "graftlet", dockerLoop)],
  },
  {
    id: "kill",
    title: "main process killed → seen at the API",
    unit: "ms",
    many: true,
    reach: [atMost(200, "graftlet", "ms")],
  },
  {
    id: "exec rate",
    title: "1 GiB through exec",
    unit: "MiB/s",
    many: false,
    reach: [atLeastTimes(0.4, "graftlet", containerdPath)],
  },
  { id: "relists", title: "lists of containers, idle, 50 pods", unit: "a minute", many: false, reach: [] },
  {
    id: "other calls",
    title: "other calls, idle, 50 pods",
    unit: "a minute",
    many: false,
    reach: [atMost(0, "graftlet", "a minute")],
  },
  { id: "idle cpu", title: "CPU, idle, 50 pods", unit: "s a minute", many: false, reach: [] },
];
