/** Verbosity for source files whose names match a pattern (klog's vmodule). */
export interface FileVerbosity {
  /** Matched with a file's name without directory and `.ts`; supports `*`, `?` and `[…]`. */
  readonly filePattern: string;
  readonly verbosity: number;
}

/** A process's log verbosity, in klog's levels; may change at run time. */
export type Verbosity = ReturnType<typeof createVerbosity>;

/** @param initial the kubelet's `-v`. @param files its `--vmodule`; the first pattern that matches a file applies.
 *  @see https://pkg.go.dev/k8s.io/klog/v2#V */
export function createVerbosity(initial: number, files: readonly FileVerbosity[] = []) {
  let current = initial;
  const own = files
    .filter(({ verbosity }) => verbosity > 0)
    .map(({ filePattern, verbosity }) => ({ pattern: patternOf(filePattern), verbosity }));
  return {
    /** True if some files have their own level. */
    byFile: own.length > 0,
    /** The level of all files. */
    current: (): number => current,
    set: (level: number): void => void (current = level),
    /** True if lines of that level are written for a file. @param file its name, such as `log.ts`. */
    shows(level: number, file: string): boolean {
      if (level <= current) return true;
      const name = file.replace(/\.ts$/, "");
      return level <= (own.find(({ pattern }) => pattern.test(name))?.verbosity ?? 0);
    },
  };
}

/** An invalid pattern matches nothing, as in Go. @see https://pkg.go.dev/path/filepath#Match */
function patternOf(glob: string): RegExp {
  const source = glob.replace(/\[\^?[^\]\\]+\]|[^\w]/g, (part) => {
    if (part === "*") return ".*";
    if (part === "?") return ".";
    return part.length > 1 ? part : `\\${part}`;
  });
  try {
    return new RegExp(`^${source}$`);
  } catch {
    return /(?!)/;
  }
}
