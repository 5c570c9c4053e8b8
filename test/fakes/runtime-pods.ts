import { createHash } from "node:crypto";
import type * as cri from "../../src/gen/cri.ts";
import {
  Container,
  ContainerState,
  ContainerStatus,
  NamespaceMode,
  PodSandbox,
  PodSandboxState,
  PodSandboxStatus,
} from "../../src/gen/cri.ts";
import type { Clock, Timer } from "../../src/lib/clock.ts";
import { CodedError } from "../../src/lib/errors.ts";
import type { RuntimeEvent } from "../../src/seams/runtime.ts";
import type { FakeImages } from "./runtime-images.ts";
import type { Program } from "./runtime-programs.ts";

export interface FakeSandbox {
  readonly config: cri.PodSandboxConfig;
  readonly status: cri.PodSandboxStatus;
}

export interface FakeContainer {
  readonly sandboxId: string;
  readonly config: cri.ContainerConfig;
  readonly status: cri.ContainerStatus;
  /** What it runs; undefined before its start. */
  program?: Program;
  timer?: Timer;
}

export interface FakePodsOptions {
  readonly clock: Clock;
  readonly images: FakeImages;
  readonly emit: (event: RuntimeEvent) => void;
  readonly programOf: (config: cri.ContainerConfig) => Program;
}

export type FakePods = ReturnType<typeof createFakePods>;

/** Sandboxes and containers in memory, with containerd's rules: names are taken until removal, stop and remove repeat safely,
 *  a sandbox takes its containers with it. Times are the clock's, in nanoseconds. */
export function createFakePods({ clock, images, emit, programOf }: FakePodsOptions) {
  const sandboxes = new Map<string, FakeSandbox>();
  const containers = new Map<string, FakeContainer>();
  let made = 0;
  let addressed = 0;
  let ticks = 0n;
  // No two moments are the same, though the clock may stand still.
  const nowNanos = () => BigInt(Math.round(clock.now())) * 1_000_000n + ++ticks;
  const newId = () => createHash("sha256").update(`fake ${++made}`).digest("hex");

  const sandbox = (id: string) =>
    found(sandboxes.get(id), `an error occurred when try to find sandbox: not found: ${id}`);
  const container = (id: string) =>
    found(containers.get(id), `an error occurred when try to find container "${id}": not found`);
  const ofSandbox = (id: string) => [...containers.values()].filter(({ sandboxId }) => sandboxId === id);

  const life = containerLife({ clock, emit, programOf, nowNanos });
  const remove = (it: FakeContainer) => {
    life.exit(it, 137);
    containers.delete(it.status.id);
    emit({ kind: "changed", containerId: it.status.id, removed: true });
  };
  const stopSandbox = (it: FakeSandbox) => {
    for (const one of ofSandbox(it.status.id)) life.exit(one, 137);
    if (it.status.state === PodSandboxState.SANDBOX_NOTREADY) return;
    it.status.state = PodSandboxState.SANDBOX_NOTREADY;
    emit({ kind: "changed", sandboxId: it.status.id });
  };

  return {
    sandboxes,
    containers,
    sandbox,
    container,
    ...life,
    remove,
    stopSandbox,
    runSandbox(config: cri.PodSandboxConfig, runtimeHandler: string): string {
      const name = nameOf(config);
      const taken = [...sandboxes.values()].find((one) => nameOf(one.config) === name);
      if (taken)
        throw new CodedError(
          "unknown",
          `failed to reserve sandbox name "${name}": name is reserved for "${taken.status.id}"`,
        );
      const id = newId();
      const ip = `10.88.${Math.trunc(addressed / 250)}.${(addressed % 250) + 2}`;
      addressed += 1;
      sandboxes.set(id, {
        config,
        status: newSandboxStatus({ id, config, runtimeHandler, ip, createdAt: nowNanos() }),
      });
      emit({ kind: "changed", sandboxId: id });
      return id;
    },
    removeSandbox(it: FakeSandbox) {
      stopSandbox(it);
      for (const one of ofSandbox(it.status.id)) remove(one);
      sandboxes.delete(it.status.id);
      emit({ kind: "changed", sandboxId: it.status.id, removed: true });
    },
    create(sandboxId: string, config: cri.ContainerConfig): string {
      const { status, config: sandboxConfig } = sandbox(sandboxId);
      if (status.state !== PodSandboxState.SANDBOX_READY)
        throw new CodedError("unknown", `sandbox container "${sandboxId}" is not running`);
      const { name, attempt } = found(config.metadata, "container config has no metadata", "invalid_argument");
      const taken = ofSandbox(sandboxId).find(
        ({ config: { metadata } }) => metadata?.name === name && metadata.attempt === attempt,
      );
      if (taken)
        throw new CodedError(
          "unknown",
          `failed to reserve container name "${name}": name is reserved for "${taken.status.id}"`,
        );
      const reference = config.image?.image ?? "";
      const image = found(
        images.find(reference),
        `failed to get image from containerd "${reference}": image "${reference}": not found`,
      );
      const id = newId();
      containers.set(id, {
        sandboxId,
        config,
        status: newContainerStatus({
          id,
          config,
          image,
          logDirectory: sandboxConfig.logDirectory,
          createdAt: nowNanos(),
        }),
      });
      emit({ kind: "changed", containerId: id });
      return id;
    },
  };
}

interface LifeOptions extends Pick<FakePodsOptions, "clock" | "emit" | "programOf"> {
  readonly nowNanos: () => bigint;
}

/** What becomes of one container. */
function containerLife({ clock, emit, programOf, nowNanos }: LifeOptions) {
  const exit = (it: FakeContainer, exitCode: number, reason = exitCode === 0 ? "Completed" : "Error") => {
    if (it.status.state !== ContainerState.CONTAINER_RUNNING) return;
    it.timer?.cancel();
    Object.assign(it.status, { state: ContainerState.CONTAINER_EXITED, exitCode, reason, finishedAt: nowNanos() });
    emit({ kind: "changed", containerId: it.status.id, exited: true });
  };
  return {
    exit,
    start(it: FakeContainer) {
      if (it.status.state !== ContainerState.CONTAINER_CREATED)
        throw new CodedError("unknown", `container "${it.status.id}" is not in created state`);
      const program = programOf(it.config);
      it.program = program;
      Object.assign(it.status, { state: ContainerState.CONTAINER_RUNNING, startedAt: nowNanos() });
      emit({ kind: "changed", containerId: it.status.id });
      const { exitCode } = program;
      if (exitCode !== undefined) it.timer = clock.after(program.afterMs, () => exit(it, exitCode));
    },
    /** A start that the runtime could not do leaves the container exited with 128, as containerd does. */
    failStart(it: FakeContainer, message: string) {
      Object.assign(it.status, {
        state: ContainerState.CONTAINER_EXITED,
        exitCode: 128,
        reason: "StartError",
        message,
        startedAt: 0n,
        finishedAt: nowNanos(),
      });
      emit({ kind: "changed", containerId: it.status.id });
    },
  };
}

/** The sandboxes that a filter wants, as list shows them. */
export function listSandboxes({ sandboxes }: FakePods, filter: cri.PodSandboxFilter | undefined): cri.PodSandbox[] {
  return [...sandboxes.values()]
    .filter(({ status }) => matches(filter, status))
    .map(({ status }) => PodSandbox.fromPartial(status));
}

/** The containers that a filter wants, as list shows them. */
export function listContainers({ containers }: FakePods, filter: cri.ContainerFilter | undefined): cri.Container[] {
  return [...containers.values()]
    .filter(
      ({ status, sandboxId }) =>
        matches(filter, status) && (!filter?.podSandboxId || sandboxId.startsWith(filter.podSandboxId)),
    )
    .map(({ status, sandboxId }) => Container.fromPartial({ ...status, podSandboxId: sandboxId }));
}

/** What runtimes make of a sandbox's metadata: unique until removal. */
function nameOf({ metadata }: cri.PodSandboxConfig): string {
  const { name, namespace, uid, attempt } = found(metadata, "sandbox config has no metadata", "invalid_argument");
  return `${name}_${namespace}_${uid}_${attempt}`;
}

interface NewSandbox {
  readonly id: string;
  readonly config: cri.PodSandboxConfig;
  readonly runtimeHandler: string;
  readonly ip: string;
  readonly createdAt: bigint;
}

/** A sandbox in the host's network has no address of its own. */
function newSandboxStatus({ id, config, runtimeHandler, ip, createdAt }: NewSandbox): cri.PodSandboxStatus {
  const { metadata, labels, annotations, linux } = config;
  const options = linux?.securityContext?.namespaceOptions;
  return PodSandboxStatus.fromPartial({
    id,
    metadata,
    labels,
    annotations,
    runtimeHandler,
    createdAt,
    state: PodSandboxState.SANDBOX_READY,
    network: { ip: options?.network === NamespaceMode.NODE ? "" : ip },
    linux: { namespaces: { options } },
  });
}

interface NewContainer {
  readonly id: string;
  readonly config: cri.ContainerConfig;
  readonly image: cri.Image;
  readonly logDirectory: string;
  readonly createdAt: bigint;
}

function newContainerStatus({ id, config, image, logDirectory, createdAt }: NewContainer): cri.ContainerStatus {
  const { metadata, labels, annotations, mounts, logPath } = config;
  return ContainerStatus.fromPartial({
    id,
    metadata,
    labels,
    annotations,
    mounts,
    createdAt,
    state: ContainerState.CONTAINER_CREATED,
    image: { image: image.repoTags[0] ?? image.id, userSpecifiedImage: config.image?.userSpecifiedImage ?? "" },
    imageRef: image.repoDigests[0] ?? image.id,
    imageId: image.id,
    logPath: logPath && `${logDirectory}/${logPath}`,
  });
}

interface Filter {
  readonly id: string;
  readonly state: { readonly state: number } | undefined;
  readonly labelSelector: { readonly [key: string]: string };
}

function matches(
  filter: Filter | undefined,
  status: { id: string; state: number; labels: { [key: string]: string } },
): boolean {
  if (!filter) return true;
  if (!status.id.startsWith(filter.id)) return false;
  if (filter.state && filter.state.state !== status.state) return false;
  return Object.entries(filter.labelSelector).every(([key, value]) => status.labels[key] === value);
}

function found<T>(value: T | undefined, message: string, code: "not_found" | "invalid_argument" = "not_found"): T {
  if (value === undefined) throw new CodedError(code, message);
  return value;
}
