import type { Duplex } from "node:stream";
import type * as cri from "../../src/gen/cri.ts";
import { CgroupDriver, RuntimeConfigResponse, StatusResponse } from "../../src/gen/cri.ts";
import type { Clock } from "../../src/lib/clock.ts";
import { CodedError } from "../../src/lib/errors.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { createFakeEvents } from "./runtime-events.ts";
import { type Call, type Gate, type Verb, createGate } from "./runtime-gate.ts";
import { createFakeImages } from "./runtime-images.ts";
import { createFakePods } from "./runtime-pods.ts";
import { type Program, interpret } from "./runtime-programs.ts";
import {
  type ExecScript,
  type StreamServer,
  type World,
  containerVerbs,
  execVerb,
  imageVerbs,
  sandboxVerbs,
  statsVerbs,
  streamVerbs,
} from "./runtime-verbs.ts";

/** How tests steer the fake. */
export interface FakeControls {
  /** Every call so far, failed ones included. */
  readonly calls: readonly Call[];
  /** The next `times` calls (default 1) of `verb` reject with `error` and do nothing else. */
  failNext(verb: Verb, error: Error, times?: number): void;
  /** Calls of `verb` wait, heeding their signals, until the returned function is called. */
  hold(verb: Verb): () => void;
  /** The next start of a container of this name fails as containerd's do: the call rejects, the container is Exited 128. */
  failStart(containerName: string, message: string): void;
  /** A container's process ends by itself. */
  exitContainer(id: string, exitCode: number, reason?: string): void;
  /** A sandbox dies, with all its containers. */
  killSandbox(id: string): void;
  /** What containers run, in place of `interpret`'s reading of their command. */
  onStart(programOf: (config: cri.ContainerConfig) => Program): void;
  /** What execSync answers, in place of `interpret`'s reading. It may throw a CodedError. */
  onExec(run: ExecScript): void;
  /** Serves exec, attach and port-forward connections; by default each is answered 404. */
  onStream(serve: StreamServer): void;
  /** Puts an image in the store; returns its ID. */
  addImage(name: string, details?: Partial<cri.Image>): string;
  /** Makes an image pullable. */
  offerImage(name: string): void;
  /** Sets RuntimeReady or NetworkReady, both true at first. */
  setCondition(type: string, status: boolean, reason?: string, message?: string): void;
  /** Out of reach: calls fail with `unavailable`, event streams break, containers carry on. */
  goDown(): void;
  comeUp(): void;
}

export type FakeRuntime = Runtime & FakeControls;

export interface FakeRuntimeOptions {
  readonly clock: Clock;
  /** False: no event stream, as runtimes without one. Default true. */
  readonly events?: boolean;
  /** False: no call is kept, for a runtime that runs for long. Default true. */
  readonly isRecorded?: boolean;
}

/** A container runtime in memory with the states, times and errors of a real one. Containers run what `interpret` makes of
 *  their command; one that is stopped exits at once, with 143 (137 without grace), unless its program ignores SIGTERM. */
export function fakeRuntime({ clock, events = true, isRecorded = true }: FakeRuntimeOptions): FakeRuntime {
  const gate = createGate(isRecorded);
  const bus = createFakeEvents();
  const images = createFakeImages(clock);
  const script = {
    programOf: (config: cri.ContainerConfig): Program => interpret([...config.command, ...config.args]),
  };
  const pods = createFakePods({ clock, images, emit: bus.emit, programOf: (config) => script.programOf(config) });
  const world: World = { clock, gate, pods, images, badStarts: new Map(), runExec: undefined, serve: answerNotFound };
  const conditions = new Map([
    ["RuntimeReady", condition(true)],
    ["NetworkReady", condition(true)],
  ]);
  return {
    ...serviceVerbs(gate, conditions),
    ...sandboxVerbs(world),
    ...containerVerbs(world),
    ...execVerb(world),
    ...imageVerbs(world),
    ...statsVerbs(world),
    ...streamVerbs(world),
    ...(events && { events: bus.listen }),
    async [Symbol.asyncDispose]() {
      for (const { timer } of pods.containers.values()) timer?.cancel();
    },
    calls: gate.calls,
    failNext: gate.failNext,
    hold: gate.hold,
    failStart: (name, message) => void world.badStarts.set(name, message),
    exitContainer: (id, exitCode, reason) => pods.exit(pods.container(id), exitCode, reason),
    killSandbox: (id) => pods.stopSandbox(pods.sandbox(id)),
    onStart: (programOf) => void (script.programOf = programOf),
    onExec: (run) => void (world.runExec = run),
    onStream: (serve) => void (world.serve = serve),
    addImage: images.add,
    offerImage: images.offer,
    setCondition: (type, status, reason, message) => void conditions.set(type, condition(status, reason, message)),
    goDown() {
      gate.setDown(true);
      bus.breakAll(new CodedError("unavailable", "the fake runtime is down"));
    },
    comeUp: () => gate.setDown(false),
  };
}

type Condition = Omit<cri.RuntimeCondition, "type">;

function condition(status: boolean, reason = "", message = ""): Condition {
  return { status, reason, message };
}

function serviceVerbs(
  gate: Gate,
  conditions: ReadonlyMap<string, Condition>,
): Pick<Runtime, "version" | "status" | "runtimeConfig" | "updateRuntimeConfig"> {
  return {
    async version(signal) {
      await gate.enter("version", {}, signal);
      return { version: "0.1.0", runtimeName: "fake", runtimeVersion: "1.0.0", runtimeApiVersion: "v1" };
    },
    async status(signal) {
      await gate.enter("status", {}, signal);
      return StatusResponse.fromPartial({
        status: { conditions: [...conditions].map(([type, rest]) => ({ type, ...rest })) },
      });
    },
    async runtimeConfig(signal) {
      await gate.enter("runtimeConfig", {}, signal);
      return RuntimeConfigResponse.fromPartial({ linux: { cgroupDriver: CgroupDriver.CGROUPFS } });
    },
    updateRuntimeConfig: (request, signal) => gate.enter("updateRuntimeConfig", request, signal),
  };
}

function answerNotFound(_verb: string, _request: unknown, connection: Duplex): void {
  connection.once("data", () => connection.end("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"));
}
