// Makes what all test files of a run have in common, and writes down where it is: node test/harness/prepare.ts FOLDER [store] [machines] [guests]
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildImages } from "../cluster/images/build.ts";
import { guestImage } from "../machines/guest-image.ts";
import { savedState } from "../machines/guest-state.ts";
import { systemRoot } from "../machines/root.ts";
import { machineUnderTest } from "../machines/systems.ts";
import { testKit } from "../cluster/tools/kits.ts";
import { startCluster } from "./cluster.ts";
import { keepFirstStore } from "./first-store.ts";
import type { Prepared } from "./prepared.ts";
import { must } from "./processes.ts";
import { guestSizes } from "./state.ts";
import { findToolFolders, toolsIn } from "./tools.ts";

const [folder, ...wanted] = process.argv.slice(2);
if (folder === undefined) throw new Error("write: node test/harness/prepare.ts FOLDER [store] [machines] [guests]");
const say = (line: string): void => void process.stderr.write(`${line}\n`);
const project = join(import.meta.dirname, "..", "..");
// Agents of other users read it.
chmodSync(folder, 0o755);
const built = join(folder, "graftlet");
await must([process.execPath, join(project, "tools", "build.ts"), join(project, "src", "main.ts"), built]);
const tools = {
  "1.6": await findToolFolders(say, "1.6", testKit),
  "2.4": await findToolFolders(say, "2.4", testKit),
};
const images = await buildImages(toolsIn(tools["1.6"]), say);
if (wanted.includes("machines")) await systemRoot(machineUnderTest().system, say);
if (wanted.includes("guests")) await savedState(await guestImage(say), { sizes: guestSizes, store: images }, say);
const store = wanted.includes("store") ? join(folder, "store") : undefined;
if (store !== undefined) await makeStore(store);
const prepared: Prepared = {
  tools,
  images,
  graftlet: join(built, "graftlet.mjs"),
  ...(store !== undefined && { store }),
};
writeFileSync(join(folder, "prepared.json"), JSON.stringify(prepared));

/** The store of a cluster whose controllers have made an account and the authority's certificate in each namespace. */
async function makeStore(store: string): Promise<void> {
  mkdirSync(store, { mode: 0o700 });
  await using cluster = await startCluster({ name: "first", provider: "cri", containerd: "1.6" });
  await cluster.waitFor("accounts and certificates in all namespaces", async () => {
    const made = await Promise.all(
      ["default", "kube-system", "kube-public", "kube-node-lease"].flatMap((namespace) => [
        cluster.get("serviceaccount", "default", namespace),
        cluster.get("configmap", "kube-root-ca.crt", namespace),
      ]),
    );
    return made.every((object) => object !== undefined);
  });
  await keepFirstStore(cluster, store);
}
