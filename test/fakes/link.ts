import type { LinkTrouble, TargetLink } from "../../src/seams/provider.ts";

/** A link that a test cuts and mends. */
export interface FakeLink extends TargetLink {
  cut(trouble?: LinkTrouble): void;
  mend(): void;
  /** Listeners that have not been taken off. */
  readonly listeners: number;
}

export function fakeLink(): FakeLink {
  const listeners = new Set<() => void>();
  let trouble: LinkTrouble | undefined;
  const become = (now: LinkTrouble | undefined) => {
    trouble = now;
    for (const listener of listeners) listener();
  };
  return {
    trouble: () => trouble,
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    cut: (now = { reason: "LinkDown", message: "the target does not answer" }) => become(now),
    mend: () => become(undefined),
    get listeners() {
      return listeners.size;
    },
  };
}
