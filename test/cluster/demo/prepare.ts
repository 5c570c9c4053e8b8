import { findHelm } from "../../harness/helm.ts";
import { graftletArchive } from "../../harness/image.ts";
import { findTools, installPackages } from "../../harness/tools.ts";
import { buildImages } from "../images/build.ts";
import { demoKit, type Kit } from "../tools/kits.ts";
import type { Steps } from "./steps.ts";

/** A demo with a cluster of its own. */
export interface DemoKind {
  /** By helm, from a Pod on a node of the real kubelet. */
  readonly helm: boolean;
  readonly agent: "graftlet" | "kubelet";
}

/** Parts to build before a demo can start. */
export interface DemoNeeds {
  readonly kit: Kit;
  readonly helm: boolean;
  /** The container image of this checkout. */
  readonly ownImage: boolean;
}

export function needsOf({ helm, agent }: DemoKind): DemoNeeds {
  return { kit: demoKit({ kubelet: helm || agent === "kubelet" }), helm, ownImage: helm };
}

/** So many steps come before the cluster is started. */
export function preparations({ helm, ownImage }: DemoNeeds): number {
  return 3 + (helm ? 1 : 0) + (ownImage ? 1 : 0);
}

/** Builds what the demo needs, once per machine; afterwards its cluster starts without a wait. */
export async function prepare({ kit, helm, ownImage }: DemoNeeds, steps: Steps): Promise<void> {
  steps.begin("installing Debian packages that lack");
  await installPackages();
  steps.begin(`building ${kit.programs.join(", ")}`);
  const tools = await findTools(steps.note, undefined, kit);
  if (helm) {
    steps.begin("building helm");
    await findHelm();
  }
  steps.begin("making the pods' images");
  await buildImages(tools, steps.note, kit.images);
  if (!ownImage) return;
  steps.begin("making graftlet's own image");
  await graftletArchive(tools, steps.note);
}
