import assert from "node:assert/strict";
import { test } from "node:test";
import type { ServerWritableStream } from "@grpc/grpc-js";
import { containerdEvent, criEvent, criEvents } from "../../../../providers/cri/events.ts";
import {
  ContainerEventResponse,
  ContainerEventType,
  RuntimeServiceService as runtimeService,
  VersionResponse,
} from "../../../../src/gen/cri.ts";
import {
  ContainerEvent,
  Envelope,
  EventsService,
  type SubscribeRequest,
  TaskEvent,
} from "../../../../src/gen/containerd-events.ts";
import { systemClock } from "../../../../src/lib/clock.ts";
import type { Logger } from "../../../../src/lib/log.ts";
import type { RuntimeEvent } from "../../../../src/seams/runtime.ts";
import { never } from "../../../fakes/signals.ts";
import { type SocketRig, socketRig } from "./server.ts";

const { version, getContainerEvents } = runtimeService;
const answerVersion = (_call: unknown, reply: (error: null, value: VersionResponse) => void): void =>
  reply(null, VersionResponse.fromPartial({ version: "0.1.0" }));

interface Told {
  readonly events: (signal: AbortSignal) => AsyncGenerator<RuntimeEvent>;
  readonly logged: object[];
}

function eventsOf(rig: SocketRig): Told {
  const logged: object[] = [];
  const log: Logger = {
    trace() {},
    debug() {},
    info: (fields) => void logged.push(fields),
    warn() {},
    error() {},
    child: () => log,
  };
  return { events: criEvents({ runtime: rig.channel, clock: systemClock(), log }), logged };
}

async function take(count: number, events: AsyncGenerator<RuntimeEvent>): Promise<RuntimeEvent[]> {
  const taken: RuntimeEvent[] = [];
  for await (const event of events) {
    taken.push(event);
    if (taken.length === count) break;
  }
  return taken;
}

const taskEvent = (topic: string, containerId: string): Envelope =>
  Envelope.fromPartial({
    namespace: "k8s.io",
    topic,
    event: {
      typeUrl: "containerd.events.TaskDelete",
      value: Buffer.from(TaskEvent.encode({ containerId }).finish()),
    },
  });

test("prefers CRI's own events if the runtime has them", async () => {
  await using rig = socketRig();
  await rig.serve((server) =>
    server.addService(
      { version, getContainerEvents },
      {
        version: answerVersion,
        getContainerEvents: (stream: ServerWritableStream<unknown, ContainerEventResponse>) =>
          void stream.write(
            ContainerEventResponse.fromPartial({
              containerId: "c",
              podSandboxStatus: { id: "s", metadata: { uid: "u" } },
            }),
          ),
      },
    ),
  );
  const { events, logged } = eventsOf(rig);
  assert.deepEqual(await take(2, events(never)), [
    { kind: "listening" },
    { kind: "changed", sandboxId: "s", containerId: "c", podUid: "u" },
  ]);
  assert.deepEqual(logged, []);
});

test("falls back to containerd's event service, and logs a missing source once", async () => {
  await using rig = socketRig();
  const asked: SubscribeRequest[] = [];
  const namespaces: unknown[] = [];
  await rig.serve((server) => {
    server.addService({ version }, { version: answerVersion });
    server.addService(EventsService, {
      subscribe: (stream: ServerWritableStream<SubscribeRequest, Envelope>) => {
        asked.push(stream.request);
        namespaces.push(...stream.metadata.get("containerd-namespace"));
        stream.write(taskEvent("/tasks/delete", "c"));
      },
    });
  });
  const { events, logged } = eventsOf(rig);
  for (let round = 0; round < 2; round++) {
    assert.deepEqual(await take(2, events(never)), [
      { kind: "listening" },
      { kind: "changed", containerId: "c", exited: true },
    ]);
  }
  assert.ok(asked[0]?.filters.includes('namespace==k8s.io,topic=="/tasks/delete"'));
  // Would also deliver the end of each command that a probe runs in a container.
  assert.ok(!asked[0]?.filters.some((filter) => filter.includes("/tasks/exit")));
  assert.equal(namespaces[0], "k8s.io");
  assert.deepEqual(logged, [{ source: "CRI GetContainerEvents" }]);
});

test("a stream without events yields listening and ends when its signal aborts", async () => {
  await using rig = socketRig();
  await rig.serve((server) =>
    server.addService({ version, getContainerEvents }, { version: answerVersion, getContainerEvents: () => {} }),
  );
  const stop = new AbortController();
  const seen: RuntimeEvent[] = [];
  for await (const event of eventsOf(rig).events(stop.signal)) {
    seen.push(event);
    stop.abort();
  }
  assert.deepEqual(seen, [{ kind: "listening" }]);
});

test("a runtime without events is unimplemented and never yields listening", async () => {
  await using rig = socketRig();
  await rig.serve((server) => server.addService({ version }, { version: answerVersion }));
  await assert.rejects(take(1, eventsOf(rig).events(never)), { code: "unimplemented" });
});

test("a runtime that ends the stream at once, as CRI-O does by default, has no events", async () => {
  await using rig = socketRig();
  const end = (call: ServerWritableStream<unknown, ContainerEventResponse>) => call.end();
  await rig.serve((server) =>
    server.addService({ version, getContainerEvents }, { version: answerVersion, getContainerEvents: end }),
  );
  await assert.rejects(take(1, eventsOf(rig).events(never)), { code: "unimplemented" });
});

test("a broken stream throws unavailable", async () => {
  await using rig = socketRig();
  const stop = await rig.serve((server) =>
    server.addService({ version, getContainerEvents }, { version: answerVersion, getContainerEvents: () => {} }),
  );
  const events = eventsOf(rig).events(never);
  assert.deepEqual(await events.next(), { done: false, value: { kind: "listening" } });
  setImmediate(stop);
  await assert.rejects(events.next(), { code: "unavailable" });
});

test("a CRI event of the sandbox itself has no container; a stop is marked", () => {
  const podSandboxStatus = { id: "s", metadata: { uid: "u" } };
  assert.deepEqual(criEvent(ContainerEventResponse.fromPartial({ containerId: "s", podSandboxStatus })), {
    kind: "changed",
    sandboxId: "s",
    podUid: "u",
  });
  const stopped = ContainerEventResponse.fromPartial({
    containerId: "c",
    containerEventType: ContainerEventType.CONTAINER_STOPPED_EVENT,
    createdAt: 1_700_000_000_123_456_789n,
  });
  assert.deepEqual(criEvent(stopped), { kind: "changed", containerId: "c", exited: true, at: 1_700_000_000_123 });
});

test("containerd's task and container events name the container", () => {
  assert.deepEqual(containerdEvent(taskEvent("/tasks/start", "c")), { kind: "changed", containerId: "c" });
  const deleted = Envelope.fromPartial({
    topic: "/containers/delete",
    event: { value: Buffer.from(ContainerEvent.encode({ id: "d" }).finish()) },
  });
  assert.deepEqual(containerdEvent(deleted), { kind: "changed", containerId: "d", removed: true });
  const task = containerdEvent(taskEvent("/tasks/delete", "c"));
  assert.deepEqual(task, { kind: "changed", containerId: "c", exited: true });
  assert.equal(containerdEvent(Envelope.fromPartial({ topic: "/tasks/start" })), undefined);
});
