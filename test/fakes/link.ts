import type { LinkTrouble, TargetLink } from "../../src/seams/provider.ts";

/** A link that a test cuts and mends. */
export interface FakeLink extends TargetLink {
  cut(trouble?: LinkTrouble): void;
  /** One of several connections is lost. */
  thin(): void;
  mend(): void;
  /** Listeners that have not been taken off. */
  readonly listeners: number;
}

export function fakeLink(): FakeLink {
  const listeners = new Set<() => void>();
  let trouble: LinkTrouble | undefined;
  let losses = 0;
  const become = (now: LinkTrouble | undefined) => {
    trouble = now;
    for (const listener of listeners) listener();
  };
  return {
    trouble: () => trouble,
    losses: () => losses,
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    cut(now = { reason: "LinkDown", message: "the target does not answer" }) {
      if (!trouble) losses += 1;
      become(now);
    },
    thin() {
      losses += 1;
      become(trouble);
    },
    mend: () => become(undefined),
    get listeners() {
      return listeners.size;
    },
  };
}
