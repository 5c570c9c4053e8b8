import assert from "node:assert/strict";
import { test } from "node:test";
import * as models from "@kubernetes/client-node/dist/gen/models/all.js";
import * as container from "../../../src/admission/container-decisions.ts";
import * as pod from "../../../src/admission/pod-decisions.ts";
import { createFieldChecker } from "../../../src/admission/field-checker.ts";
import * as volume from "../../../src/admission/volume-decisions.ts";
import type { PodSpec } from "../../../src/objects.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

/** All fields of the API's model, by the table that has their decisions. */
const tables: [string, object][] = [
  ["V1PodSpec", pod.podSpec],
  ["V1PodSecurityContext", pod.podSecurity],
  ["V1Container", container.container],
  ["V1EphemeralContainer", container.ephemeral],
  ["V1SecurityContext", container.containerSecurityDecisions],
  ["V1Lifecycle", container.lifecycle],
  ["V1ResourceRequirements", container.resources],
  ["V1VolumeMount", container.volumeMount],
  ["V1EnvVarSource", container.envSource],
  ["V1Volume", volume.volume],
  ["V1VolumeProjection", volume.projection],
];

for (const [name, decisions] of tables) {
  test(`the table of supported fields covers every field of ${name}`, () => {
    const model: { getAttributeTypeMap?: () => { baseName: string }[] } | undefined = new Map<string, object>(
      Object.entries(models),
    ).get(name);
    const fields = model?.getAttributeTypeMap?.().map(({ baseName }) => baseName) ?? [];
    assert.ok(fields.length > 2);
    assert.deepEqual(Object.keys(decisions).sort(), fields.sort());
  });
}

const served = createFieldChecker();
const unserved = (spec: Partial<PodSpec>) => served.unsupportedFields(aPod(spec), never);
const fieldsOf = async (spec: Partial<PodSpec>) => (await unserved(spec)).map(({ field }) => field);
const exec = { exec: { command: ["true"] } };
const mount = { name: "v", mountPath: "/v" };

test("supports a pod with only the API server's defaults", async () => {
  assert.deepEqual(
    await fieldsOf({
      dnsPolicy: "ClusterFirst",
      restartPolicy: "Always",
      schedulerName: "default-scheduler",
      securityContext: { sysctls: [{ name: "net.ipv4.tcp_syncookies", value: "0" }] },
      hostnameOverride: "h",
      resources: { requests: { cpu: "1" }, limits: { cpu: "1" } },
      serviceAccountName: "default",
      terminationGracePeriodSeconds: 30,
      enableServiceLinks: true,
      hostUsers: false,
      setHostnameAsFQDN: true,
      activeDeadlineSeconds: 5,
      preemptionPolicy: "PreemptLowerPriority",
      readinessGates: [{ conditionType: "a/b" }],
      runtimeClassName: "kata",
      overhead: { cpu: "10m" },
      ephemeralContainers: [{ ...aContainer("e"), targetContainerName: "c" }],
      initContainers: [aContainer("i"), aContainer("s", { restartPolicy: "Always" })],
      containers: [
        aContainer("c", {
          imagePullPolicy: "IfNotPresent",
          restartPolicy: "Never",
          restartPolicyRules: [{ action: "Restart", exitCodes: { operator: "In", values: [1] } }],
          resources: {
            requests: { cpu: "1", "ephemeral-storage": "1Gi" },
            limits: { memory: "1Gi", "ephemeral-storage": "1Gi" },
          },
          readinessProbe: exec,
          livenessProbe: exec,
          startupProbe: exec,
          lifecycle: { postStart: exec, preStop: { sleep: { seconds: 1 } }, stopSignal: "SIGUSR1" },
          env: [
            { name: "A", value: "b" },
            { name: "B", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } },
            { name: "C", valueFrom: { fileKeyRef: { key: "k", path: "p", volumeName: "a" } } },
          ],
          terminationMessagePath: "/dev/termination-log",
          terminationMessagePolicy: "FallbackToLogsOnError",
          securityContext: {
            privileged: true,
            capabilities: { add: ["NET_ADMIN"] },
            seccompProfile: { type: "RuntimeDefault" },
          },
          volumeMounts: [
            { ...mount, readOnly: true, mountPropagation: "None", recursiveReadOnly: "IfPossible", subPath: "" },
            { ...mount, subPath: "a/b", mountPropagation: "Bidirectional" },
            { ...mount, readOnly: true, recursiveReadOnly: "Enabled" },
            { ...mount, subPathExpr: "$(A)" },
          ],
        }),
      ],
      volumes: [
        { name: "a", emptyDir: { sizeLimit: "1Gi" } },
        { name: "b", emptyDir: { medium: "Memory", sizeLimit: "1Gi" } },
        { name: "h", emptyDir: { medium: "HugePages-2Mi" } },
        { name: "c", hostPath: { path: "/" } },
        { name: "d", configMap: { name: "x" } },
        { name: "e", secret: { secretName: "x" } },
        { name: "g", downwardAPI: {} },
        {
          name: "f",
          projected: {
            sources: [
              { serviceAccountToken: { path: "token" } },
              { configMap: {} },
              { downwardAPI: {} },
              { secret: {} },
            ],
          },
        },
      ],
    }),
    [],
  );
});

const heldFields: [string, Partial<PodSpec>][] = [
  ["spec.volumes[0].fc", { volumes: [{ name: "v", fc: { targetWWNs: ["500a0982991b8dc5"], lun: 0 } }] }],
];

for (const [field, spec] of heldFields) {
  test(`reports ${field} as unsupported`, async () => {
    assert.deepEqual(await fieldsOf(spec), [field]);
    for (const { why } of await unserved(spec)) assert.match(why, /^[a-z].* [a-z]/);
  });
}

test("reports an unsupported volume type with the volume's name", async () => {
  const volumes = [
    { name: "ok", emptyDir: {} },
    { name: "data", fc: { targetWWNs: ["500a0982991b8dc5"], lun: 0 } },
  ];
  assert.deepEqual(await unserved({ volumes }), [
    { field: "spec.volumes[1].fc", why: 'no volume plugin matched: volume "data" of type fc' },
  ]);
});

test("reports all unsupported fields", async () => {
  const spec = {
    containers: [],
    volumes: [
      { name: "t", fc: { targetWWNs: ["a"], lun: 0 } },
      { name: "v", flexVolume: { driver: "example.com/disk" } },
    ],
  };
  assert.deepEqual(await fieldsOf(spec), ["spec.volumes[0].fc", "spec.volumes[1].flexVolume"]);
});
