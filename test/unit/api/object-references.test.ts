import assert from "node:assert/strict";
import { test } from "node:test";
import { referencedObjects } from "../../../src/pod/object-references.ts";
import { pod } from "./pods.ts";

test("finds each Secret and ConfigMap that a pod references once", () => {
  const found = referencedObjects(
    pod("p", {
      imagePullSecrets: [{ name: "pull" }],
      initContainers: [
        { name: "i", envFrom: [{ secretRef: { name: "all" } }, { configMapRef: { name: "settings" } }] },
      ],
      containers: [
        {
          name: "c",
          env: [
            { name: "A", valueFrom: { secretKeyRef: { name: "one", key: "k" } } },
            { name: "B", valueFrom: { configMapKeyRef: { name: "settings", key: "k" } } },
            { name: "C", value: "v" },
          ],
        },
      ],
      ephemeralContainers: [{ name: "e", envFrom: [{ configMapRef: { name: "debug" } }] }],
      volumes: [
        { name: "s", secret: { secretName: "mounted" } },
        { name: "c", configMap: { name: "files" } },
        {
          name: "p",
          projected: {
            sources: [
              { secret: { name: "part" } },
              { configMap: { name: "kube-root-ca.crt" } },
              { serviceAccountToken: { path: "token" } },
            ],
          },
        },
      ],
    }),
  );
  assert.deepEqual(found.secrets.toSorted(), ["all", "mounted", "one", "part", "pull"]);
  assert.deepEqual(found.configMaps.toSorted(), ["debug", "files", "kube-root-ca.crt", "settings"]);
});

test("finds no references in a pod that has none", () => {
  assert.deepEqual(referencedObjects(pod("p")), { secrets: [], configMaps: [] });
});
