/** A call that containerd has logged. */
export interface RuntimeCall {
  readonly verb: string;
  /** Name of the pod. */
  readonly pod: string;
  /** Milliseconds since the epoch. */
  readonly began: number;
  readonly ended: number;
}

const line = /^time="([^"]+)" level=info msg=("(?:[^"\\]|\\.)*")/;
const verbs = ["RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox"] as const;
const returned = / returns (?:successfully|(?:sandbox|container) id "(\w+)")$/;

/** Reads the calls that begin and end within a log of containerd, in the order of their ends. */
export function runtimeCalls(log: string): readonly RuntimeCall[] {
  const podOf = new Map<string, string>();
  const open = new Map<string, number>();
  const calls: RuntimeCall[] = [];
  for (const text of log.split("\n")) {
    const [, time, quoted] = line.exec(text) ?? [];
    if (time === undefined || quoted === undefined) continue;
    const message = JSON.parse(quoted) as string;
    const verb = verbs.find((name) => message.startsWith(name));
    if (!verb) continue;
    const name = /PodSandboxMetadata\{Name:([^,]+),/.exec(message)?.[1];
    const id = /"(\w+)"/.exec(message)?.[1] ?? "";
    const [ends, made] = returned.exec(message) ?? [];
    const pod = name ?? podOf.get(id);
    if (pod === undefined) continue;
    if (made !== undefined) podOf.set(made, pod);
    const key = `${verb} ${pod}`;
    const began = open.get(key);
    if (ends === undefined) open.set(key, Date.parse(time));
    else if (began !== undefined) calls.push({ verb, pod, began, ended: Date.parse(time) });
  }
  return calls;
}

/** How many of the calls were in progress at a time: the mean between the first beginning and the last end, and the most. */
export function concurrency(calls: readonly RuntimeCall[]): { readonly mean: number; readonly most: number } {
  const first = Math.min(...calls.map(({ began }) => began));
  const last = Math.max(...calls.map(({ ended }) => ended));
  const total = calls.reduce((sum, { began, ended }) => sum + ended - began, 0);
  const most = calls.map(({ began }) => calls.filter((other) => other.began <= began && other.ended > began).length);
  return { mean: total / (last - first), most: Math.max(...most) };
}
