import { distances, local, overSsh } from "./bench-ssh.ts";
import { type Ledger, medians } from "./ledger.ts";
import { type Reach, atMostBeyond } from "./reach.ts";
import type { Figure } from "./report.ts";

/** What `make bench PROVIDER=ssh` measures. @param ledger what was measured: one figure is held against another. */
export function sshFigures(ledger: Ledger): readonly Figure[] {
  return [
    {
      id: "start",
      title: "create → Running, one by one",
      unit: "ms",
      many: true,
      reach: distances.map((distance) => beyondLocal(distance, { trips: 5, ms: 20 })),
    },
    {
      id: "kill",
      title: "main process killed → seen at the API",
      unit: "ms",
      many: true,
      reach: distances.map((distance) => beyondLocal(distance, { trips: 1, ms: 50 })),
    },
    {
      id: "exec rate",
      title: "256 MiB through exec",
      unit: "MiB/s",
      many: false,
      reach: distances.map((distance) => toCat(ledger, distance)),
    },
    { id: "cat rate", title: "256 MiB through `ssh host cat`", unit: "MiB/s", many: false, reach: [] },
  ];
}

function beyondLocal(distance: number, { trips, ms }: { readonly trips: number; readonly ms: number }): Reach {
  const who = overSsh(distance);
  const base = { text: local, of: (measured: (who: string) => number | undefined) => measured(local) };
  const reach = atMostBeyond(base, trips * distance + ms, who, "ms");
  return { ...reach, text: `${who}: ${reach.text}` };
}

function toCat(ledger: Ledger, distance: number): Reach {
  const who = overSsh(distance);
  return {
    text: `${who}: ≥ 0.50 × ssh host cat`,
    unit: "×",
    of(measured) {
      const [exec, cat] = [measured(who), medians(ledger, "cat rate")(who)];
      return exec === undefined || cat === undefined ? undefined : exec / cat;
    },
    isReached: (value) => value >= 0.5,
  };
}
