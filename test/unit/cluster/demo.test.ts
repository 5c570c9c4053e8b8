import { deepEqual, ok } from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needsOf, preparations } from "../../cluster/demo/prepare.ts";
import { createSteps } from "../../cluster/demo/steps.ts";
import { catalog, samplePluginImage, shell, upstreamPrivateImage } from "../../cluster/images/catalog.ts";
import { nfsImages } from "../../cluster/images/nfs.ts";
import { storageImages } from "../../cluster/images/storage.ts";
import { programsIn, testKit } from "../../cluster/tools/kits.ts";

const cluster = join(import.meta.dirname, "..", "..", "cluster");
const plain = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"];

test("builds only what a demo needs: the kubelet if it runs a node, helm and graftlet's image if it uses helm", () => {
  const own = needsOf({ helm: false, agent: "graftlet" });
  deepEqual([own.kit.programs, own.helm, own.ownImage, preparations(own)], [plain, false, false, 3]);
  const beside = needsOf({ helm: false, agent: "kubelet" });
  deepEqual([beside.kit.programs, beside.helm, preparations(beside)], [[...plain, "kubelet"], false, 3]);
  const helm = needsOf({ helm: true, agent: "graftlet" });
  deepEqual([helm.kit.programs, helm.helm, helm.ownImage, preparations(helm)], [[...plain, "kubelet"], true, true, 5]);
});

test("builds every image that the demo's pods use", () => {
  const { images } = needsOf({ helm: false, agent: "graftlet" }).kit;
  const served = images.flatMap(({ name, tags }) => tags.map((tag) => `${name.replace(/^library\//, "")}:${tag}`));
  const named = readFileSync(join(cluster, "demo", "demo.yaml"), "utf8").matchAll(/^ *(?:- )?image: (\S+)$/gm);
  const wanted = [...new Set([...named].map(([, image]) => image))];
  ok(wanted.length > 1);
  deepEqual(
    wanted.filter((image) => !served.includes(image ?? "")),
    [],
  );
});

test("builds every program in a kit's images from the module that contains it", () => {
  for (const { name, module } of catalog.flatMap(programsIn))
    ok(
      readFileSync(join(cluster, "tools", module, "go.mod"), "utf8").match(
        new RegExp(`^tool.*/${name}$|^\\t.*/${name}$`, "m"),
      ),
      name,
    );
  deepEqual(testKit.programs, [...plain, "kubelet", "agnhost"]);
  const onDemand = catalog.filter((image) => !testKit.images.includes(image)).map(({ name }) => name);
  const ofStorage = storageImages(shell).map(({ name }) => name);
  const ofSuites = [samplePluginImage, upstreamPrivateImage, ...nfsImages(shell).map(({ name }) => name)];
  deepEqual(
    onDemand.toSorted(),
    ["coredns/coredns", "metrics-server/metrics-server", ...ofStorage, ...ofSuites, "library/postgres"].toSorted(),
  );
});

test("prints each step's number and duration", () => {
  const lines: string[] = [];
  let now = 0;
  const steps = createSteps(
    2,
    (line) => lines.push(line),
    () => now,
  );
  steps.begin("boiling water");
  steps.note("70 °C");
  now = 61_400;
  steps.begin("making tea");
  now = 63_000;
  steps.end();
  steps.end();
  deepEqual(lines, [
    "==> boiling water (1 of 2) …",
    "    70 °C",
    "    done in 61 s",
    "==> making tea (2 of 2) …",
    "    done in 2 s",
  ]);
});
