import type { NumaNodes } from "../lib/numa-nodes.ts";
import type { Container, Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import { isSidecar } from "../pod/containers.ts";
import { emptySharedPool, ownRequests, podLevelRequests, wholePod } from "../pod/pinned-resources.ts";
import { quantityNumber } from "../pod/quantity.ts";
import { isHugePages, podRequests } from "../pod/resources.ts";
import { type TopologyHint, type TopologyHints, unaligned } from "../topology-hints.ts";
import { type MemoryRequest, chooseNodes, memoryHints } from "./hints.ts";
import { type MachineState, type MemoryBlock, releaseBlock, reserveBlock } from "./machine-state.ts";

/** Memory blocks by container name. A container whose memory was released before its pod ended has an entry without blocks. The memory
 *  of a pod with pod-level resources as a whole is under `wholePod`; the blocks of its containers are then parts of it. */
export type PodMemory = ReadonlyMap<string, readonly MemoryBlock[]>;

export interface MemoryState {
  readonly machine: MachineState;
  /** Memory blocks of containers, by pod UID. */
  readonly assigned: ReadonlyMap<string, PodMemory>;
}

/** Allocates memory to a container of a pod that `isPinned`. Does nothing if the container already has memory, or only shares the memory
 *  of its pod. Memory that earlier init containers have on the same nodes is reused, since they have ended when this container starts.
 *  @param hint of the topology manager. @throws Error in the kubelet's words. */
export function allocateMemory(
  state: MemoryState,
  pod: Pod,
  container: Container,
  hint: TopologyHint = unaligned,
): MemoryState {
  const { uid } = pod.metadata;
  const own = state.assigned.get(uid) ?? new Map<string, readonly MemoryBlock[]>();
  if (own.has(container.name)) return state;
  const request = requestedMemory(pod, container);
  if (request.size === 0) return state;
  const reusable = (at: NumaNodes, type: string) => reusableBytes(pod, own, at, type);
  const nodes = chooseNodes(state.machine, request, reusable, hint);
  const blocks = [...request].map(([type, bytes]): MemoryBlock => ({ nodes, type, bytes }));
  const machine = blocks.reduce(
    (before, block) => reserveBlock(before, block, Math.max(0, block.bytes - reusable(nodes, block.type))),
    state.machine,
  );
  const containers = new Map(takeOver(pod, own, blocks)).set(container.name, blocks);
  return { machine, assigned: new Map(state.assigned).set(uid, containers) };
}

/** Allocates memory to a pod with pod-level resources as a whole, and divides it among its containers. A pod keeps memory that it already
 *  has.
 *  @param hint of the topology manager. @throws Error in the kubelet's words. (kubelet, cm/memorymanager/policy_static.go) */
export function allocatePodMemory(state: MemoryState, pod: Pod, hint: TopologyHint): MemoryState {
  const { uid } = pod.metadata;
  if (state.assigned.has(uid)) return state;
  const request = podRequest(pod);
  const nodes = chooseNodes(state.machine, request, () => 0, hint);
  const blocksOf = (amounts: MemoryRequest) =>
    [...amounts].map(([type, bytes]): MemoryBlock => ({ nodes, type, bytes }));
  const whole = blocksOf(request);
  const machine = whole.reduce((before, block) => reserveBlock(before, block, block.bytes), state.machine);
  const shares = [...divideMemory(pod, request)].map(([name, amounts]) => [name, blocksOf(amounts)] as const);
  const own: PodMemory = new Map([[wholePod, whole], ...shares]);
  return { machine, assigned: new Map(state.assigned).set(uid, own) };
}

/** Divides the memory of a pod among its containers: containers whose own requests equal their limits get exclusive memory, the others
 *  share the rest. An init container can use memory that later containers get; memory of sidecars is not reused. */
function divideMemory(pod: Pod, all: MemoryRequest): ReadonlyMap<string, MemoryRequest> {
  const { initContainers = [], containers } = pod.spec;
  const shares = new Map<string, MemoryRequest>();
  const left = new Map(all);
  const rest = () => new Map([...left].filter(([, bytes]) => bytes > 0));
  const ending = new Set(endingInit(pod));
  for (const container of [...initContainers, ...containers]) {
    const endsEarly = ending.has(container.name);
    const request = requestedMemory(pod, container);
    if (request.size > 0) {
      shares.set(container.name, request);
      if (!endsEarly) for (const [type, bytes] of request) left.set(type, (left.get(type) ?? 0) - bytes);
    } else if (endsEarly) shares.set(container.name, rest());
  }
  for (const { name } of [...initContainers, ...containers]) if (!shares.has(name)) shares.set(name, rest());
  return shares;
}

/** Rejection of a pod with pod-level resources whose containers without exclusive memory would get none; undefined if they get some. */
export function emptyPodMemory(pod: Pod): Rejection | undefined {
  return emptySharedPool(pod, podRequest(pod), (container) => requestedMemory(pod, container));
}

/** Releases memory of init containers that no other container has reused. @param starting name of a container that starts, so that the
 *  init containers before it have ended. */
export function releaseEndedInit(state: MemoryState, { metadata: { uid }, spec }: Pod, starting: string): MemoryState {
  const own = state.assigned.get(uid);
  const init = spec.initContainers ?? [];
  const at = init.findIndex(({ name }) => name === starting);
  const ended = init
    .slice(0, at < 0 ? init.length : at)
    .filter((one) => !isSidecar(one) && (own?.get(one.name)?.length ?? 0) > 0);
  if (!own || own.has(wholePod) || ended.length === 0) return state;
  const machine = ended.flatMap(({ name }) => own.get(name) ?? []).reduce(releaseBlock, state.machine);
  const containers = new Map([...own, ...ended.map(({ name }) => [name, []] as const)]);
  return { machine, assigned: new Map(state.assigned).set(uid, containers) };
}

/** Releases all memory of a pod. */
export function releasePod(state: MemoryState, uid: string): MemoryState {
  const own = state.assigned.get(uid);
  if (!own) return state;
  const assigned = new Map(state.assigned);
  assigned.delete(uid);
  return { machine: heldBlocks(own).reduce(releaseBlock, state.machine), assigned };
}

/** The memory blocks that a pod holds: the whole pod's blocks if it has pod-level resources, otherwise the blocks of its containers. */
export function heldBlocks(own: PodMemory): readonly MemoryBlock[] {
  return own.get(wholePod) ?? [...own.values()].flat();
}

/** Returns hints for the memory of a container, or of the pod as a whole. The hint for allocated memory is the nodes that it is on.
 *  @returns no hints if any nodes are possible, or no set has enough memory: the allocation then fails.
 *  @throws Error in the kubelet's words. */
export function topologyHints(state: MemoryState, pod: Pod, container: Container | undefined): TopologyHints {
  const request = container ? requestedMemory(pod, container) : podRequest(pod);
  if (!container && podLevelRequests(pod) && emptyPodMemory(pod))
    return new Map([...request.keys()].map((type) => [type, []]));
  const own = state.assigned.get(pod.metadata.uid) ?? new Map<string, readonly MemoryBlock[]>();
  const all = [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
  const allocated = container
    ? own.get(container.name)
    : (own.get(wholePod) ??
      all.map(({ name }) => own.get(name)).find((blocks) => blocks !== undefined && blocks.length > 0));
  if (allocated) return hintsOfBlocks(allocated, request);
  const reusable = (at: NumaNodes, type: string) => (container ? reusableBytes(pod, own, at, type) : 0);
  const hints = memoryHints(state.machine, request, reusable);
  return new Map(hints.length === 0 ? [] : [...request.keys()].map((type) => [type, hints]));
}

/** @returns no hints if a container's memory differs from its request, such as an init container whose memory was reused. */
function hintsOfBlocks(blocks: readonly MemoryBlock[], request: MemoryRequest): TopologyHints {
  const isSame = blocks.length === request.size && blocks.every(({ type, bytes }) => request.get(type) === bytes);
  return new Map(isSame ? blocks.map(({ nodes, type }) => [type, [{ nodes, preferred: true }]]) : []);
}

/** Memory that a container of a pinned pod requests exclusively; empty if it shares the pod's memory. @throws Error in the kubelet's
 *  words. */
function requestedMemory(pod: Pod, container: Container): MemoryRequest {
  return memoryOf(ownRequests(pod, container));
}

/** Memory that a pod requests: its pod-level requests, otherwise the maximum that its containers request at one time. */
function podRequest(pod: Pod): MemoryRequest {
  const ofPod = podLevelRequests(pod);
  if (!ofPod) return memoryOf(podRequests(pod, { overhead: false }));
  return new Map([...memoryOf(ofPod)].filter(([, bytes]) => bytes > 0));
}

function memoryOf(amounts: Readonly<Record<string, string>>): MemoryRequest {
  const names = Object.keys(amounts).filter((name) => name === "memory" || isHugePages(name));
  return new Map(
    names
      .sort((a, b) => Number(isHugePages(a)) - Number(isHugePages(b)) || a.localeCompare(b))
      .map((name) => {
        const bytes = quantityNumber(amounts[name] ?? "0");
        if (!Number.isSafeInteger(bytes)) throw new Error("[memorymanager] failed to represent quantity as int64");
        return [name, bytes];
      }),
  );
}

/** Names of the init containers that end before others start. */
function endingInit({ spec: { initContainers = [] } }: Pod): readonly string[] {
  return initContainers.filter((one) => !isSidecar(one)).map(({ name }) => name);
}

/** Memory that the pod's init containers still have on exactly these nodes. */
function reusableBytes(pod: Pod, own: PodMemory, nodes: NumaNodes, type: string): number {
  return endingInit(pod)
    .flatMap((name) => own.get(name) ?? [])
    .filter((block) => block.nodes === nodes && block.type === type)
    .reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Takes memory for new blocks from init containers, first to last, so that the pod's blocks add up to its memory. */
function takeOver(pod: Pod, own: PodMemory, blocks: readonly MemoryBlock[]): PodMemory {
  const left = new Map(blocks.map(({ type, bytes }) => [type, bytes]));
  const nodes = blocks[0]?.nodes;
  const next = new Map(own);
  for (const name of endingInit(pod)) {
    const before = own.get(name);
    if (!before) continue;
    const after = before.map((block): MemoryBlock => {
      const taken = block.nodes === nodes ? Math.min(block.bytes, left.get(block.type) ?? 0) : 0;
      left.set(block.type, (left.get(block.type) ?? 0) - taken);
      return { ...block, bytes: block.bytes - taken };
    });
    next.set(name, after);
  }
  return next;
}
