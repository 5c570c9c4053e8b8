import { availableParallelism, cpus, freemem } from "node:os";

/** Spare capacity of a machine while tests run on it. */
export interface Spare {
  /** The part of its processors' time that was idle lately, 0 to 1. */
  readonly idle: number;
  /** Bytes of memory. */
  readonly memory: number;
}

/** Tests of clusters wait much: as many run at once as keep the processors busy. */
const idleEnough = 0.25;

/** Memory of a cluster with a node, bytes. */
const memoryOfCluster = 1.5 * 2 ** 30;

/** Files with a cluster use 0.3 of a processor on average. One that waits at first may be busy later: more than this many per processor
 *  make each other's tests time out. */
const mostPerProcessor = 2.5;

/** Files of tests that run. */
export interface Running {
  readonly running: number;
  /** The same, but one that mostly waits counts half. */
  readonly load: number;
}

/** True if one more file of tests may start beside those that run. One for each processor always may, if the machine has what it
 *  takes besides a cluster. @param more that, bytes of memory. */
export function hasRoom({ running, load }: Running, { idle, memory }: Spare, processors: number, more = 0): boolean {
  if (running === 0) return true;
  if (running < processors) return more === 0 || memory >= memoryOfCluster + more;
  return load < processors * mostPerProcessor && idle >= idleEnough && memory >= memoryOfCluster + more;
}

/** Measures what this machine has to spare: each answer is about the time since the answer before. */
export function createGauge(): () => Spare {
  let before = times();
  return () => {
    const now = times();
    const [idle, all] = [now.idle - before.idle, now.all - before.all];
    before = now;
    return { idle: all > 0 ? idle / all : 0, memory: freemem() };
  };
}

/** How many files may always run. */
export const processors = availableParallelism();

function times(): { readonly idle: number; readonly all: number } {
  const each = cpus().map((cpu) => cpu.times);
  const idle = each.reduce((sum, time) => sum + time.idle, 0);
  return { idle, all: each.reduce((sum, { user, nice, sys, irq }) => sum + user + nice + sys + irq, idle) };
}
