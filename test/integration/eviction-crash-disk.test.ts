import { after, before, describe, it } from "node:test";
import { type Agent, hastyRounds, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type ImageStore, smallImageStore } from "../harness/image-store.ts";
import { particulars } from "../harness/particulars.ts";
import { openPods, type Pods, shell, type SpecDraft } from "../harness/pods.ts";
import {
  clear,
  keepingFiles,
  keepingProcesses,
  onlyEvicted,
  pidsToLeave,
  processIdsTurn,
  smallRootDir,
  tooManyProcesses,
  untilCondition,
  untilEvicted,
  untouched,
} from "../harness/pressure.ts";
import { providerUnderTest } from "../harness/runtime-daemon.ts";
import type { Moment, RuntimeProxy } from "../harness/runtime-proxy.ts";

const suite = "registry.k8s.io/e2e-test-images";
const unused = [`${suite}/kitten:1.8`, `${suite}/nautilus:1.8`, `${suite}/nginx:1.27-0`];
const thresholds = { "nodefs.available": "30%", "imagefs.available": "25%" };

// The root directory and the runtime's images have small file systems each, so that nothing of the machine is filled.
describe("graftlet killed while it reclaims disk space", { timeout: 900_000 }, () => {
  const { moments, startProxy } = particulars[providerUnderTest()];
  const evicted: string[] = [];
  let cluster: Cluster;
  let proxy: RuntimeProxy;
  let agent: Agent;
  let processIds: AsyncDisposable | undefined;
  let pods: Pods;
  let store: ImageStore;

  const start = async (evictionHard: Readonly<Record<string, string>>) => {
    agent = await startGraftlet(cluster, {
      // Images that a round has seen may go, however young they are.
      config: { evictionPressureTransitionPeriod: "5s", imageMinimumGCAge: "10ms", evictionHard },
      runtimeSocket: proxy.socket,
      env: hastyRounds,
    });
  };
  /** Kills the agent at that moment of an eviction of the new pod, and sees its successor through. */
  const evictedTwice = async (
    moment: Moment,
    name: string,
    spec: SpecDraft,
    hard: Readonly<Record<string, string>>,
  ) => {
    const killed = proxy.stopAt(moment, () => agent.kill("SIGKILL"));
    await pods.create(name, { ...spec, terminationGracePeriodSeconds: 1 });
    await killed;
    await start(hard);
    await untilEvicted(pods, name);
    evicted.push(name);
  };
  /** Brings images that nobody uses. */
  const bringImages = async (round: number) => {
    for (const [index, image] of unused.entries()) {
      const name = `once-${round}-${index}`;
      await pods.create(name, { restartPolicy: "Never", containers: [shell("exit 0", { image })] });
      await pods.until(name, "to have ended", ({ status }) => status?.phase === "Succeeded", 90_000);
      await clear(pods, [name]);
    }
    // Two rounds see them.
    await new Promise((resolve) => setTimeout(resolve, 6_500));
  };

  before(async () => {
    cluster = await startCluster({ name: "eviction-disk" });
    store = await smallImageStore(cluster, 1024);
    await smallRootDir(cluster, 512);
    proxy = await startProxy(cluster);
    pods = await openPods(cluster);
    await start(thresholds);
    await pods.create("modest", keepingFiles(30));
    await pods.create("entitled", keepingFiles(60, "100Mi"));
    await pods.ready("modest");
    await pods.ready("entitled");
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await processIds?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
    await proxy?.[Symbol.asyncDispose]();
  });

  for (const [index, moment] of (["before RemoveImage", "during RemoveImage", "after RemoveImage"] as const).entries())
    it(`killed ${moment}: after the next start, the remaining images are removed and no pod is evicted`, async () => {
      await bringImages(index);
      const killed = proxy.stopAt(moment, () => agent.kill("SIGKILL"));
      await store.fill(77);
      await killed;
      await start(thresholds);
      await cluster.waitFor("unused images to go", async () => (await store.usedPercent()) <= 75, {
        timeoutMs: 90_000,
      });
      await untilCondition(cluster, "DiskPressure", "False");
      await store.fill(0);
      await untouched(pods, ["modest", "entitled"]);
      await onlyEvicted(pods, []);
    });

  for (const [index, moment] of moments.end.slice(0, 5).entries())
    it(`killed ${moment} with a full disk: after the next start, the same pod is evicted and no other`, async () => {
      await evictedTwice(moment, `hoarder-${index}`, keepingFiles(250), thresholds);
      await untilCondition(cluster, "DiskPressure", "False");
      await untouched(pods, ["modest", "entitled"]);
      await onlyEvicted(pods, evicted);
      await clear(pods, [`hoarder-${index}`]);
    });

  for (const [index, moment] of [moments.end[0], moments.end[4]].entries())
    it(`killed ${moment} without free process IDs: after the next start, the same pod is evicted and no other`, async () => {
      processIds ??= await processIdsTurn();
      const few = { "pid.available": await pidsToLeave(cluster) };
      await agent.stop();
      await start(few);
      await evictedTwice(moment ?? "before StopContainer", `many-${index}`, keepingProcesses(tooManyProcesses), few);
      await untilCondition(cluster, "PIDPressure", "False");
      await untouched(pods, ["modest", "entitled"]);
      await onlyEvicted(pods, evicted);
      await clear(pods, [`many-${index}`]);
    });
});
