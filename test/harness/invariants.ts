import type { ContainerStatus as ShownStatus, Pod } from "../../src/objects.ts";
import { containerNameLabel, podNameLabel, podUidLabel } from "../../src/pod/labels.ts";
import type { Cluster } from "./cluster.ts";
import { runtimeLenses, type SeenContainer } from "./runtime-lens.ts";
import { type Sight, lookAt } from "./sight.ts";
import { Hopeless, waitFor } from "./wait.ts";

/** What runs and must go on running: containers by `POD/CONTAINER`. */
export type Baseline = ReadonlyMap<string, Standing>;

/** A running container as it was. */
interface Standing {
  readonly id: string;
  readonly restartCount: number;
  readonly process: string | undefined;
}

/** The node's truth and what must hold of it after every fault. */
export interface Invariants extends AsyncDisposable {
  /** The running containers of these pods, for `hold` to find them undisturbed. */
  standing(...pods: readonly string[]): Promise<Baseline>;
  /** Waits until the node is at rest and right: no container of `undisturbed` restarted, none runs twice (not even for a
   *  moment), nothing is left of pods that are gone, and within 10 s the API server shows what the runtime has.
   *  @throws naming what is wrong. */
  hold(undisturbed: Baseline): Promise<void>;
}

/** Within this the API server shows what the runtime has, and within this nothing is left of what is gone, milliseconds. */
const truthMs = 10_000;
const cleanMs = 30_000;

/** @param cluster its runtime is asked on its own socket, past the agent. */
export function createInvariants(cluster: Cluster): Invariants {
  const stop = new AbortController();
  const lens = runtimeLenses[cluster.provider](cluster);
  const look = () => lookAt(cluster, lens, stop.signal);
  return {
    async standing(...pods) {
      const sight = await waitFor("the node to hold still", look);
      const all = standingOf(sight);
      return new Map(
        pods.flatMap((pod) => {
          const own = [...all].filter(([key]) => key.startsWith(`${pod}/`));
          if (own.length === 0) throw new Error(`nothing of pod ${pod} runs`);
          return own;
        }),
      );
    },
    async hold(undisturbed) {
      /** Since when the API server has shown which untruth. Pods change as they are looked at: one follows another. */
      let untrueSince = new Map<string, number>();
      let wrong: readonly string[] = [];
      const check = async () => {
        const sight = await look();
        if (!sight) return false;
        const never = [...twice(sight), ...disturbed(sight, undisturbed)];
        const untrue = untold(sight);
        const now = performance.now();
        untrueSince = new Map(untrue.map((text) => [text, untrueSince.get(text) ?? now]));
        const late = untrue.filter((text) => now - (untrueSince.get(text) ?? now) > truthMs);
        if (never.length + late.length > 0) throw new Hopeless([...never, ...late].join("\n"));
        wrong = [...leftOver(sight), ...untrue];
        return wrong.length === 0;
      };
      const explain = () => wrong.join("\n");
      await waitFor("the node to be at rest and right", check, { timeoutMs: cleanMs, everyMs: 200, explain });
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await lens[Symbol.asyncDispose]();
    },
  };
}

const isRunning = ({ state }: SeenContainer): boolean => state === "running";
const uidOf = ({ labels }: Pick<SeenContainer, "labels">): string => labels[podUidLabel] ?? "";
const nameOf = (container: SeenContainer): string => container.labels[containerNameLabel] ?? "";

function standingOf({ containers, processes }: Sight): Map<string, Standing> {
  return new Map(
    containers.filter(isRunning).map((container) => {
      const { id, labels, restartCount } = container;
      return [`${labels[podNameLabel]}/${nameOf(container)}`, { id, restartCount, process: processes.get(id) }];
    }),
  );
}

/** Pods with two sandboxes or two containers of one name at the same time. */
function twice({ sandboxes, containers }: Sight): string[] {
  const keys = [
    ...sandboxes
      .filter(({ ready }) => ready)
      .map((sandbox) => `sandbox of ${sandbox.labels[podNameLabel]} ${uidOf(sandbox)}`),
    ...containers
      .filter(isRunning)
      .map((container) => `container ${nameOf(container)} of ${container.labels[podNameLabel]} ${uidOf(container)}`),
  ];
  return [...new Set(keys.filter((key, index) => keys.indexOf(key) !== index))].map((key) => `${key} is there twice`);
}

/** Containers that no longer are the ones they were. */
function disturbed(sight: Sight, undisturbed: Baseline): string[] {
  const now = standingOf(sight);
  return [...undisturbed].flatMap(([key, before]) => {
    const after = now.get(key);
    return JSON.stringify(after) === JSON.stringify(before)
      ? []
      : [`${key} was ${JSON.stringify(before)} and is ${JSON.stringify(after)}`];
  });
}

/** What belongs to pods that do not exist, or will never run. */
function leftOver({ pods, sandboxes, containers, traces, brokenLinks }: Sight): string[] {
  const known = new Set(pods.map(({ metadata }) => metadata.uid));
  return [
    ...sandboxes
      .filter((sandbox) => !known.has(uidOf(sandbox)))
      .map(
        ({ id, labels, ready }) =>
          `sandbox ${id} of ${labels[podNameLabel]} is left over, ${ready ? "ready" : "not ready"}`,
      ),
    ...containers
      .filter((container) => !known.has(uidOf(container)))
      .map(({ id, labels, state }) => `container ${id} of ${labels[podNameLabel]} is left over, ${state}`),
    ...containers
      .filter(({ state }) => state === "created")
      .map((container) => `container ${container.id} (${nameOf(container)}) was made and never started`),
    ...[...traces].filter(([uid]) => !known.has(uid)).flatMap(([, left]) => left.map((what) => `${what} is left over`)),
    ...brokenLinks.map((name) => `/var/log/containers/${name} leads nowhere`),
  ];
}

/** What the API server shows otherwise than the runtime has it. */
function untold(sight: Sight): string[] {
  return sight.pods.flatMap((pod) => {
    const own = sight.containers.filter((container) => uidOf(container) === pod.metadata.uid);
    const statuses = [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])];
    const wrong = statuses.flatMap((shown) =>
      untoldOf(
        shown,
        own.find((container) => nameOf(container) === shown.name),
      ),
    );
    return [...wrong, ...untoldAddress(pod, sight)].map((text) => `pod ${pod.metadata.name}: ${text}`);
  });
}

/** @param real the runtime's newest container of that name. */
function untoldOf(shown: ShownStatus, real: SeenContainer | undefined): string[] {
  const { running, terminated, waiting } = shown.state ?? {};
  const ended = terminated ?? (waiting && shown.lastState?.terminated);
  // Containers that have ended may be collected; what never ran the runtime cannot have.
  if (!real) return running ? [`${shown.name} is shown as running, the runtime has none`] : [];
  const says = `${shown.name} is shown as ${JSON.stringify(shown)}`;
  const has = `the runtime has ${JSON.stringify(real)}`;
  const right = isRunning(real)
    ? running !== undefined && Date.parse(running.startedAt ?? "") === wholeSeconds(real.startedAt)
    : ended?.exitCode === real.exitCode &&
      Date.parse(ended.finishedAt ?? "") === wholeSeconds(real.finishedAt) &&
      idOf(ended.containerID) === real.id;
  const same = idOf(shown.containerID) === real.id && shown.restartCount === real.restartCount;
  return right && same ? [] : [`${says}; ${has}`];
}

function untoldAddress({ metadata, spec, status }: Pod, { sandboxes, containers }: Sight): string[] {
  const sandbox = sandboxes.find((one) => uidOf(one) === metadata.uid && one.ready);
  const runs = containers.some((container) => uidOf(container) === metadata.uid && isRunning(container));
  if (!sandbox || !runs || spec.hostNetwork || status?.podIP === sandbox.address) return [];
  return [`its address is shown as ${status?.podIP}, the runtime has ${sandbox.address}`];
}

/** As the API shows times: to the second. */
function wholeSeconds(milliseconds: number): number {
  return Math.floor(milliseconds / 1000) * 1000;
}

function idOf(containerID = ""): string {
  return containerID.slice(containerID.indexOf("://") + 3);
}
