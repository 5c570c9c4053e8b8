import { bareLoop, benchCri } from "./bench-cri.ts";
import { benchDocker, containerdPath, dockerLoop } from "./bench-docker.ts";
import type { BenchLab } from "./bench-lab.ts";
import { benchFleet, sharedByThree } from "./bench-fleet.ts";
import { benchNodes, furtherNode } from "./bench-nodes.ts";
import { benchSsh, distances, local, overSsh } from "./bench-ssh.ts";
import { criFigures } from "./figures-cri.ts";
import { dockerFigures } from "./figures-docker.ts";
import { fleetFigures } from "./figures-fleet.ts";
import { nodesFigures } from "./figures-nodes.ts";
import { sshFigures } from "./figures-ssh.ts";
import type { Ledger } from "./ledger.ts";
import type { BenchOptions, Kind } from "./options.ts";
import type { Figure } from "./report.ts";

/** A kind of run: what it does, and how its table looks. */
export interface Run {
  run(lab: Pick<BenchLab, "ledger" | "say">, options: BenchOptions): Promise<void>;
  figures(ledger: Ledger): readonly Figure[];
  /** The columns. */
  readonly who: readonly string[];
}

export const runs: Readonly<Record<Kind, Run>> = {
  cri: {
    run: (lab, { scenarios }) => benchCri(lab, scenarios),
    figures: () => criFigures,
    who: ["kubelet", "graftlet", bareLoop],
  },
  docker: {
    run: (lab, { scenarios }) => benchDocker(lab, scenarios),
    figures: () => dockerFigures,
    who: ["graftlet", dockerLoop, containerdPath],
  },
  ssh: {
    run: (lab, { scenarios }) => benchSsh(lab, scenarios),
    figures: sshFigures,
    who: [local, ...distances.map(overSsh)],
  },
  fleet: {
    run: (lab, { nodes }) => benchFleet(lab, nodes),
    figures: () => fleetFigures,
    who: [sharedByThree],
  },
  nodes: {
    run: (lab, { nodes }) => benchNodes(lab, nodes),
    figures: () => nodesFigures,
    who: ["one node", "all nodes", furtherNode],
  },
};
