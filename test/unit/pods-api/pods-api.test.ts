import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { credentials, type ServiceError, status } from "@grpc/grpc-js";
import { createFileRegistry, fromBinary, toJson } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { gunzipSync } from "node:zlib";
import { podDescriptor } from "../../../src/gen/pod-descriptor.ts";
import { EventType, type ListPodsResponse, type GetPodResponse, PodsClient } from "../../../src/gen/pods.ts";
import type { Pod } from "../../../src/objects.ts";
import { createPodEncoder } from "../../../src/pods-api/encode-pod.ts";
import { createPodsServer } from "../../../src/pods-api/server.ts";
import { createPodTable } from "../../../src/state/pod-table.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aPod } from "../../fakes/pods.ts";
import { waitFor } from "../../harness/wait.ts";

const registry = createFileRegistry(
  fromBinary(FileDescriptorSetSchema, gunzipSync(Buffer.from(podDescriptor, "base64"))),
);
const schema = registry.getMessage("k8s.io.api.core.v1.Pod");
assert.ok(schema);
const decoded = (bytes: Uint8Array) => toJson(schema, fromBinary(schema, bytes)) as Record<string, unknown>;

test("encodes quantities, times, ports and inlined messages as Kubernetes' protobuf does", () => {
  const pod: Pod = aPod(
    {
      containers: [
        {
          name: "c",
          image: "i",
          resources: { limits: { cpu: "500m", memory: "1Gi" } },
          livenessProbe: { httpGet: { path: "/", port: "web" }, periodSeconds: 5 },
          lifecycle: { preStop: { tcpSocket: { port: 80 } } },
          env: [{ name: "KEY", valueFrom: { secretKeyRef: { name: "s", key: "k", optional: true } } }],
        },
      ],
      volumes: [{ name: "v", configMap: { name: "m", defaultMode: 420 } }],
    },
    { name: "p", uid: "u", creationTimestamp: "2026-01-02T03:04:05Z", labels: { a: "b" } },
  );
  const { metadata, spec } = decoded(createPodEncoder()({ ...pod, status: { phase: "Running", podIP: "1.2.3.4" } }));
  assert.deepEqual(metadata, {
    name: "p",
    namespace: pod.metadata.namespace,
    uid: "u",
    labels: { a: "b" },
    creationTimestamp: { seconds: String(Date.UTC(2026, 0, 2, 3, 4, 5) / 1000) },
  });
  const { containers, volumes } = spec as { containers: unknown[]; volumes: unknown[] };
  assert.deepEqual(containers, [
    {
      name: "c",
      image: "i",
      resources: { limits: { cpu: { string: "500m" }, memory: { string: "1Gi" } } },
      livenessProbe: {
        handler: { httpGet: { path: "/", port: { type: "1", strVal: "web" } } },
        periodSeconds: 5,
      },
      lifecycle: { preStop: { tcpSocket: { port: { intVal: 80 } } } },
      env: [
        {
          name: "KEY",
          valueFrom: { secretKeyRef: { localObjectReference: { name: "s" }, key: "k", optional: true } },
        },
      ],
    },
  ]);
  assert.deepEqual(volumes, [
    { name: "v", volumeSource: { configMap: { localObjectReference: { name: "m" }, defaultMode: 420 } } },
  ]);
});

/** A server of the pods a and b, and its client. */
async function rig(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), "pods-api-"));
  const table = createPodTable({ monotonic: () => 0 });
  const add = (uid: string) => {
    const pod = aPod({ containers: [] }, { uid, name: `name-${uid}` });
    table.desired.writer.set(uid, pod);
    return pod;
  };
  add("b");
  add("a");
  let dropped = 0;
  const api = createPodsServer({
    desired: table.desired.reader,
    worker: table.worker.reader,
    status: table.status.reader,
    encode: createPodEncoder(),
    measures: { dropped: () => void (dropped += 1) },
    clock: fakeClock(),
  });
  const listener = createServer(api.take).listen(join(directory, "s"));
  const client = new PodsClient(`unix://${directory}/s`, credentials.createInsecure());
  t.after(() => {
    client.close();
    api.close();
    listener.close();
    rmSync(directory, { recursive: true });
  });
  const watch = () => {
    const events: string[] = [];
    const types = new Map(Object.entries(EventType).map(([name, type]) => [type, name]));
    const call = client.watchPods({});
    call.on("data", ({ type, pod }: { type: EventType; pod: Buffer }) => {
      const { metadata, status: shown } = pod.length === 0 ? {} : (decoded(pod) as unknown as Pod);
      events.push([types.get(type), metadata?.name, shown?.phase].filter(Boolean).join(" "));
    });
    call.on("error", ({ code }: ServiceError) => events.push(`error ${code}`));
    return { call, events, until: (count: number) => waitFor("events", () => events.length >= count, { everyMs: 5 }) };
  };
  return { table, add, client, watch, dropped: () => dropped };
}

const answer = <Response>(call: (reply: (error: ServiceError | null, response: Response) => void) => unknown) =>
  new Promise<Response>((resolve, reject) => call((error, response) => (error ? reject(error) : resolve(response))));

test("lists pods by UID and gets a single pod, with the latest statuses", async (t) => {
  const { table, client } = await rig(t);
  table.status.writer.set("a", { phase: "Running" });
  const { pods } = await answer<ListPodsResponse>((reply) => client.listPods({}, reply));
  assert.deepEqual(
    pods.map((pod) => decoded(pod)["status"]),
    [{ phase: "Running" }, undefined],
  );
  const get = (podUID: string) => answer<GetPodResponse>((reply) => client.getPod({ podUID }, reply));
  assert.deepEqual(decoded((await get("a")).pod)["status"], { phase: "Running" });
  await assert.rejects(get("c"), { code: status.NOT_FOUND, details: "pod with UID c not found" });
});

test("a watch begins with all pods, followed by each change, and reports the deletion of a finished pod once", async (t) => {
  const { table, add, watch } = await rig(t);
  const { events, until } = watch();
  await until(3);
  const pod = add("c");
  for (const phase of ["Pending", "Running"] as const) table.status.writer.set("c", { phase });
  table.worker.writer.set("c", { phase: "terminating", pod });
  table.worker.writer.set("c", { phase: "finished", pod });
  table.worker.writer.delete("c");
  table.desired.writer.delete("c");
  table.status.writer.set("a", { phase: "Running" });
  await until(7);
  const [initial, further] = [events.slice(0, 3), events.slice(3)];
  assert.deepEqual(initial, ["ADDED name-a", "ADDED name-b", "INITIAL_SYNC_COMPLETE"]);
  const ofPod = ["ADDED name-c Pending", "MODIFIED name-c Running", "DELETED name-c"];
  assert.deepEqual(further, [...ofPod, "MODIFIED name-a Running"]);
});

test("ends a watch whose client does not read, but no other", async (t) => {
  const { table, watch, dropped } = await rig(t);
  const [slow, other] = [watch(), watch()];
  await Promise.all([slow.until(3), other.until(3)]);
  slow.call.pause();
  const message = "x".repeat(100_000);
  let count = 0;
  await waitFor(
    "the end",
    () => {
      table.status.writer.set("a", { message: `${message}${(count += 1)}` });
      return dropped() > 0;
    },
    { everyMs: 1 },
  );
  slow.call.resume();
  await waitFor("the error", () => slow.events.includes(`error ${status.RESOURCE_EXHAUSTED}`), { everyMs: 5 });
  await other.until(3 + count);
  assert.equal(dropped(), 1);
});

test("limits the number of watches", async (t) => {
  const { watch } = await rig(t);
  const watches = Array.from({ length: 51 }, watch);
  const failed = () => watches.filter(({ events }) => events.includes(`error ${status.RESOURCE_EXHAUSTED}`));
  await waitFor("the rejection", () => failed().length === 1, { everyMs: 5 });
});
