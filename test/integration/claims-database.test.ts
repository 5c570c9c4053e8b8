import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { addImage } from "../cluster/images/build.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { csi, startCsiDriver } from "../harness/csi.ts";
import { type Database, startDatabase } from "../harness/database.ts";
import { localPathClass, startLocalPathProvisioner } from "../harness/local-path.ts";
import { mountsOf } from "../harness/pod-machine.ts";
import { openPods, type Pods, statusOf } from "../harness/pods.ts";
import { switchOff, switchOn } from "../harness/reboot.ts";
import { servedStore } from "../harness/registry.ts";
import { isRemote, providerUnderTest } from "../harness/runtime-daemon.ts";
import { cutSsh } from "../harness/ssh-way.ts";

// Rows are written all the time; after each mishap every row that was committed has to be there.

let cluster: Cluster;
let agent: Agent;
let pods: Pods;
const owned = new AsyncDisposableStack();
before(async () => {
  cluster = owned.use(await startCluster({ name: "claims-database" }));
  await addImage("library/postgres", servedStore(cluster.layout), console.error);
  agent = await startGraftlet(cluster);
  pods = owned.use(await openPods(cluster));
  await startLocalPathProvisioner(cluster);
  await startCsiDriver(cluster);
});
after(async () => {
  await agent?.[Symbol.asyncDispose]();
  await owned.disposeAsync();
});

const killed = async () => {
  await agent.kill("SIGKILL");
  agent = await startGraftlet(cluster);
};

/** The next pod of a database whose pod is deleted. @param meanwhile what else happens. */
async function renewed(database: Database, meanwhile: () => Promise<void> = async () => undefined): Promise<void> {
  const { metadata } = await database.pod();
  const gone = pods.gone(metadata.name);
  await pods.remove(metadata.name, 10);
  await gone;
  await meanwhile();
  await database.ready(metadata.uid);
}

function nothingTwice(): void {
  const below = mountsOf(cluster).filter((path) => path.startsWith(cluster.layout.kubeletRoot));
  assert.deepEqual(below.toSorted(), [...new Set(below)].sort());
}

for (const storageClass of [localPathClass, csi.storageClass])
  describe(`PostgreSQL on a claim of ${storageClass}`, () => {
    let database: Database;
    before(async () => {
      database = await startDatabase(cluster, pods, { name: `on-${storageClass}`, storageClass });
    });
    after(() => database?.stop());
    const whole = async () => {
      await database.check();
      nothingTwice();
    };

    test("the database's next pod finds its rows", async () => {
      await renewed(database);
      await whole();
    });

    test("the database keeps running while graftlet is killed and started again", async () => {
      const before = await database.pod();
      await killed();
      await whole();
      const now = await database.ready();
      assert.deepEqual([now.metadata.uid, statusOf(now)?.restartCount], [before.metadata.uid, 0]);
    });

    if (isRemote(providerUnderTest()))
      test("the database keeps running while the link to its machine is cut for a minute", async () => {
        const before = await database.pod();
        await using cut = await cutSsh(cluster);
        await sleep(60_000);
        await cut.mend();
        await database.reachable();
        await whole();
        const now = await database.ready();
        assert.deepEqual([now.metadata.uid, statusOf(now)?.restartCount], [before.metadata.uid, 0]);
      });

    for (const ms of [150, 500])
      test(`the database survives if graftlet is killed ${ms} ms after its next pod may start`, async () => {
        await renewed(database, async () => {
          await sleep(ms);
          await killed();
        });
        await whole();
      });

    test("the database survives if the storage driver's pods are replaced while its own pod terminates", async () => {
      const servers = storageClass === csi.storageClass ? csi.namespace : "local-path-storage";
      await Promise.all([
        renewed(database),
        cluster.mustKubectl(["delete", "pod", "--all", "-n", servers, "--timeout=60s"], { timeoutMs: 70_000 }),
      ]);
      await whole();
    });

    if (isRemote(providerUnderTest()))
      test("the database survives if its machine loses power", async () => {
        const before = await database.pod();
        await switchOff(cluster);
        await switchOn(cluster);
        await database.reachable();
        await whole();
        assert.equal((await database.ready()).metadata.uid, before.metadata.uid);
      });
  });
