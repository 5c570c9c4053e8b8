import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Cluster } from "../../harness/cluster.ts";
import { converse } from "../../harness/conversation.ts";
import { networkArgv } from "../../harness/namespaces.ts";
import { must } from "../../harness/processes.ts";

const digestOf = (file: string): string => createHash("sha256").update(readFileSync(file)).digest("hex");

/** Each of the ways by which kubectl reaches into the workload's pods, once. @param explain what is said when it does not. */
export async function reachIn(cluster: Cluster, explain: () => Promise<string>): Promise<void> {
  const { mustKubectl } = cluster;
  // The API server may still hold a connection to the Pod before this one.
  await cluster.waitFor("logs", async () => (await mustKubectl(["logs", "job/greeter"])) === "hello from edge-1\n", {
    timeoutMs: 60_000,
    explain,
  });
  assert.equal(
    await mustKubectl(["logs", "deployment/web", "--tail=-1"]).then((text) => text.split("\n")[0]),
    "serving",
  );
  assert.match(await mustKubectl(["exec", "deployment/web", "--", "hostname"]), /^web-/);
  await attach(cluster);
  await forward(cluster);
  await copy(cluster);
}

async function attach(cluster: Cluster): Promise<void> {
  await using parrot = converse(cluster.startKubectl(["attach", "--stdin", "parrot"]));
  parrot.write("good morning\n");
  await parrot.says("you said: good morning", 30_000);
}

async function forward(cluster: Cluster): Promise<void> {
  await using way = converse(cluster.startKubectl(["port-forward", "deployment/web", "18081:8080"]));
  await way.says("Forwarding from 127.0.0.1", 30_000);
  const asked = ["curl", "--silent", "--show-error", "--max-time", "10", "http://127.0.0.1:18081/hostname"];
  assert.match(await must(networkArgv(cluster.layout, asked)), /^web-/);
}

async function copy(cluster: Cluster): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-helm-"));
  try {
    const there = join(folder, "there");
    const back = join(folder, "back");
    writeFileSync(there, randomBytes(2 ** 20));
    await cluster.mustKubectl(["cp", there, "parrot:/tmp/copied"]);
    await cluster.mustKubectl(["cp", "parrot:/tmp/copied", back]);
    assert.equal(digestOf(back), digestOf(there));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
