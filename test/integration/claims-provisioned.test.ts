import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { claim } from "../harness/claims.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { localPathClass, startLocalPathProvisioner } from "../harness/local-path.ts";
import { mount } from "../harness/manifests.ts";
import { shell } from "../harness/pods.ts";

let lab: Lab;
let folder: string;

before(async () => {
  lab = await startLab("claims-provisioned");
  folder = join(lab.cluster.root, await startLocalPathProvisioner(lab.cluster));
});
after(() => lab?.[Symbol.asyncDispose]());

test("local-path-provisioner creates a directory for the first pod, keeps it across pods and deletes it with the claim", async () => {
  const { cluster, pods } = lab;
  await cluster.apply([claim("made", undefined, { storageClassName: localPathClass })]);
  const start = (name: string, script: string) =>
    pods.create(name, {
      volumes: [{ name: "v", persistentVolumeClaim: { claimName: "made" } }],
      containers: [
        shell(`${script}; sleep 3600`, { volumeMounts: [mount("v")], securityContext: { runAsUser: 1000 } }),
      ],
    });
  await start("writer", "echo row > /v/table");
  await pods.ready("writer");
  const [volume = ""] = readdirSync(folder);
  assert.match(volume, /^pvc-.*_default_made$/);
  await cluster.waitFor("the row", () => readFileSync(join(folder, volume, "table"), "utf8") === "row\n");
  const ended = pods.gone("writer");
  await pods.remove("writer", 1);
  await ended;
  await start("reader", "cat /v/table");
  await pods.ready("reader");
  await pods.logged("reader", "row\n");
  const gone = pods.gone("reader");
  await pods.remove("reader", 1);
  await gone;
  await cluster.mustKubectl(["delete", "pvc", "made"]);
  await cluster.waitFor("the folder to go", () => !existsSync(join(folder, volume)));
});
