import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { sandboxImage } from "../../harness/containerd-config.ts";
import type { Cluster } from "../../harness/cluster.ts";
import { type Scenario, namesOf } from "../bench-lab.ts";
import { clear, idlePod, isReady, moment, numbered } from "../moments.ts";

const count = 30;
const periodSeconds = 1;

/** What a program of probed-app.ts says of itself; milliseconds since the epoch. */
interface Fitness {
  readonly name: string;
  readonly fitAt: number;
  readonly saidAt: number;
}

interface ProbedApp extends AsyncDisposable {
  readonly port: number;
  /** All of them, once each has said that it is fit. */
  readonly fitness: Promise<ReadonlyMap<string, Fitness>>;
}

/** Thirty pods that are probed every second and become fit at moments that are spread evenly over it: until they are Ready at
 *  the API server, from when they became so and from when they first said so. */
export const ready: Scenario = async ({ cluster, pods, ledger }, { who, round }) => {
  const names = numbered(namesOf("ready", { who, round }), count);
  await using app = await startApp(cluster);
  const moments = await Promise.all(
    names.map(async (name) => {
      const at = moment(pods, name, "to be Ready", isReady);
      at.catch(() => {});
      await pods.create(name, probed(cluster, app.port, name));
      return performance.timeOrigin + (await at);
    }),
  );
  const fitness = await app.fitness;
  for (const [index, name] of names.entries()) {
    const own = fitness.get(`/${name}`);
    const at = moments[index];
    if (!own || at === undefined) throw new Error(`nothing is known of ${name}`);
    ledger.note("ready", who, round, at - own.fitAt);
    ledger.note("said ready", who, round, at - own.saidAt);
  }
  await clear(pods, names);
};

function probed(cluster: Cluster, port: number, name: string) {
  const httpGet = { host: cluster.nodeAddress, port, path: `/${name}` };
  return idlePod(cluster.nodeName, {
    containers: [
      {
        image: sandboxImage,
        command: undefined,
        imagePullPolicy: "IfNotPresent",
        readinessProbe: { httpGet, periodSeconds, timeoutSeconds: 1, failureThreshold: 1 },
      },
    ],
  });
}

/** One process beside the pods that answers for the programs of all of them. */
async function startApp(cluster: Cluster): Promise<ProbedApp> {
  const argv = [process.execPath, join(import.meta.dirname, "..", "probed-app.ts")];
  const child = cluster.spawnInside([...argv, String(count), String(periodSeconds * 1000)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (!child.stdout) throw new Error("the probed programs have no standard output");
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const port = Number((await lines.next()).value);
  const fitness = (async () => {
    const all = new Map<string, Fitness>();
    while (all.size < count) {
      const { value, done } = await lines.next();
      if (done) throw new Error("the probed programs have ended");
      const own = JSON.parse(value) as Fitness;
      all.set(own.name, own);
    }
    return all;
  })();
  fitness.catch(() => {});
  return {
    port,
    fitness,
    async [Symbol.asyncDispose]() {
      const ended = once(child, "exit");
      if (child.kill("SIGKILL")) await ended;
    },
  };
}
