import { setTimeout as sleep } from "node:timers/promises";
import type { Node } from "../../../src/objects.ts";
import type { EdgeMachine } from "../../harness/edge-machine.ts";
import type { HelmLab } from "../../harness/helm-lab.ts";
import type { Replicas } from "./replicas.ts";

/** How long an object may have no owner that exists, milliseconds. */
const longestUnownedMs = 60_000;
/** Interval of looking, milliseconds. */
const intervalMs = 1_000;

/** Prints each epoch that the machine's root directories record, as `PATH UID EPOCH`, and each change of one. */
const ledger = `
import glob, time
known = {}
while True:
    for path in glob.glob("/var/lib/**/graftlet/token", recursive=True):
        try: text = open(path).read().strip()
        except OSError: continue
        if text and known.get(path) != text:
            known[path] = text
            print(path, text, flush=True)
    time.sleep(0.1)`;

/** Watches what must never happen, whatever goes wrong with replicas. */
export interface ReplicaWatch extends Disposable {
  /** What has happened and must not; empty if all is well. */
  violations(): readonly string[];
  /** What the watch has seen, to tell that it looked: epochs that a machine recorded, and looks at the objects. */
  seen(): { readonly epochs: number; readonly looks: number };
  /** While the cluster cannot be asked, and until its Nodes are looked at again, nothing is held against a Node. */
  pause(): void;
  resume(): void;
}

/** Watches that no epoch on a machine decreases, that no Node's readiness becomes Unknown, and that no object is without an owner for a
 *  minute. */
export function watchReplicas({ cluster, edge }: HelmLab, { list, pods }: Replicas): ReplicaWatch {
  const violations = new Set<string>();
  const stop = new AbortController();
  const unowned = new Map<string, number>();
  let looks = 0;
  let isPaused = false;
  const recorded = followLedger(edge, (violation) => violations.add(violation));
  const look = async (): Promise<void> => {
    const [owned, running, text] = await Promise.all([
      list(),
      pods(),
      cluster.mustKubectl(["get", "nodes", "--output=json"]),
    ]);
    if (isPaused) return;
    looks += 1;
    const names = new Set(running.map(({ metadata: { name } }) => name));
    for (const { name, replica } of owned) {
      if (names.has(replica)) unowned.delete(name);
      else if (!unowned.has(name)) unowned.set(name, performance.now());
      const since = unowned.get(name) ?? performance.now();
      if (performance.now() - since > longestUnownedMs) violations.add(`${name} has had no owner for a minute`);
    }
    const { items } = JSON.parse(text) as { readonly items: readonly Node[] };
    for (const { metadata, status } of items) {
      const ready = status?.conditions?.find(({ type }) => type === "Ready");
      const isMachine = owned.some(({ name }) => name === metadata.name);
      if (isMachine && ready?.status === "Unknown") violations.add(`Node ${metadata.name} became Unknown`);
    }
  };
  void (async () => {
    while (!stop.signal.aborted) {
      // The cluster may be cut off or busy; what matters is seen at the next look.
      if (!isPaused) await look().catch(() => undefined);
      await sleep(intervalMs);
    }
  })();
  return {
    violations: () => [...violations],
    seen: () => ({ epochs: recorded.count(), looks }),
    pause() {
      isPaused = true;
    },
    resume() {
      isPaused = false;
      unowned.clear();
    },
    [Symbol.dispose]() {
      stop.abort();
      recorded[Symbol.dispose]();
    },
  };
}

/** Follows the epochs that a machine's root directories record. */
function followLedger(edge: EdgeMachine, onViolation: (violation: string) => void) {
  const epochs = new Map<string, number>();
  let count = 0;
  const process = edge.startInside(["python3", "-c", ledger]);
  let rest = "";
  process.stdout?.on("data", (chunk: Buffer) => {
    const lines = `${rest}${chunk.toString()}`.split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const [path = "", uid, text] = line.split(" ");
      const [key, epoch] = [`${path} ${uid}`, Number(text)];
      const before = epochs.get(key) ?? 0;
      if (!(epoch > before)) onViolation(`${path} recorded epoch ${text} after ${before}`);
      epochs.set(key, epoch);
      count += 1;
    }
  });
  return { count: () => count, [Symbol.dispose]: () => void process.kill("SIGKILL") };
}
