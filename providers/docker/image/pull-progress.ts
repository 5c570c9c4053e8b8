import type { PullProgress } from "../../../src/seams/runtime.ts";

/** A line of the daemon's response to a pull.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Image/operation/ImageCreate */
export interface PullMessage {
  readonly status?: string;
  /** Short layer ID, or the tag. */
  readonly id?: string;
  readonly progressDetail?: { readonly current?: number; readonly total?: number };
  readonly error?: string;
  readonly errorDetail?: { readonly code?: number; readonly message?: string };
}

interface Layer {
  readonly stage: Stage;
  readonly bytes: number;
  /** Undefined until the download begins. */
  readonly total?: number;
}

type Stage = "waiting" | "fetching" | "fetched" | "extracting" | "done";

/** The daemon's status texts, the only indication of a layer's stage. */
const stages: Readonly<Record<string, Stage>> = {
  Waiting: "waiting",
  "Pulling fs layer": "fetching",
  Downloading: "fetching",
  "Verifying Checksum": "fetched",
  "Download complete": "fetched",
  Extracting: "extracting",
  "Pull complete": "done",
  "Already exists": "done",
};

/** Maximum number of tracked layers: an image has at most 127, and each message sums up all of them. */
const maxLayers = 1_000;

/** Sums up a pull's messages. Byte counts are of the compressed layers. */
export function createPullTracker() {
  const layers = new Map<string, Layer>();
  return {
    add({ status = "", id, progressDetail }: PullMessage): void {
      const stage = stages[status];
      if (id === undefined || stage === undefined) return;
      if (layers.size >= maxLayers && !layers.has(id)) return;
      layers.set(id, nextLayer(layers.get(id), stage, status === "Downloading" ? progressDetail : undefined));
    },
    progress: () => progressOf([...layers.values()]),
    /** True while no data is expected from the registry: layers are unpacked, or wait for other pulls. Engines 25 to 27 with containerd's
     *  image store send nothing while they unpack: there every unfinished layer has been fetched. */
    idle(): boolean {
      const now = new Set([...layers.values()].map(({ stage }) => stage));
      return now.has("extracting") || ((now.has("waiting") || now.has("fetched")) && !now.has("fetching"));
    },
  };
}

/** A fetched layer has all of its bytes, even if the last message reported fewer. */
function nextLayer(known: Layer | undefined, stage: Stage, detail: PullMessage["progressDetail"]): Layer {
  const total = detail?.total ?? known?.total;
  const fetched = stage !== "waiting" && stage !== "fetching";
  const bytes = fetched ? (total ?? 0) : (detail?.current ?? known?.bytes ?? 0);
  return { stage, bytes, ...(total !== undefined && { total }) };
}

function progressOf(layers: readonly Layer[]): PullProgress {
  const known = layers.every(({ stage, total }) => total !== undefined || stage === "done");
  const sum = (numbers: readonly number[]) => numbers.reduce((all, each) => all + each, 0);
  return {
    bytes: sum(layers.map(({ bytes }) => bytes)),
    ...(known && layers.length > 0 && { totalBytes: sum(layers.map(({ total }) => total ?? 0)) }),
    layers: layers.length,
    layersDone: layers.filter(({ stage }) => stage === "done").length,
  };
}
