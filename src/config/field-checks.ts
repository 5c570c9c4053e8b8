import { quantitySign } from "./go-values.ts";
import type { TextMap } from "./value-types.ts";

/** Checks of single values. Each returns a remedy in the imperative, or undefined for a valid value. */
type Check<T> = (value: T) => string | undefined;

/** @param shown the bounds as a user writes them, if different from the numbers. */
export function checkRange(low: number, high: number, shown?: string): Check<number> {
  const bounds =
    shown ?? (high > 2 ** 40 ? `${low} or more` : high === 2 ** 31 - 1 ? `${low} or more` : `${low} to ${high}`);
  return (value) => (value >= low && value <= high ? undefined : `use a value of ${bounds}`);
}

/** @param zeroDisables true if 0 disables the port. */
export function checkPort(zeroDisables: boolean): Check<number> {
  return (value) => {
    if ((value >= 1 && value <= 65_535) || (zeroDisables && value === 0)) return undefined;
    return `use a port from 1 to 65535${zeroDisables ? ", or 0 for none" : ""}`;
  };
}

export const checkAbsolutePath: Check<string> = (path) => {
  const clean = path.startsWith("/") && !/\/(\.{0,2})(\/|$)/.test(path.length > 1 ? path : "");
  return clean && /^[\x20-\x7e]+$/.test(path)
    ? undefined
    : "use an absolute path in ASCII without //, ., .. or a slash at its end";
};

export const checkSize: Check<string> = (size) =>
  quantitySign(size) === undefined ? 'use a size such as "10Mi"' : undefined;

/** Cipher suites by their IANA names; the TLS library decides which of them are available. */
export const checkCipherSuites: Check<readonly string[]> = (suites) =>
  suites.every((suite) => /^TLS_[A-Z0-9_]+$/.test(suite))
    ? undefined
    : "use names such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";

/** CPU list in the kernel's format: `0-3,8`. */
export const checkCpuSet: Check<string> = (list) => {
  const fine =
    list === "" ||
    list.split(",").every((part) => {
      const [, low, high] = /^(\d+)(?:-(\d+))?$/.exec(part) ?? [];
      return low !== undefined && (high === undefined || Number(low) <= Number(high));
    });
  return fine ? undefined : 'use a CPU list such as "0-3,8"';
};

/** Namespaced kernel parameters, or prefixes of their names with `*`; all others belong to the machine.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/#enabling-unsafe-sysctls */
export const checkSysctls: Check<readonly string[]> = (patterns) => {
  const ofPods = /^(?:kernel[./](?:sem|shm\w*|msg\w*)|(?:net|fs[./]mqueue)[./][\w./-]*)\*?$/;
  const other = patterns.find((pattern) => !ofPods.test(pattern));
  return other === undefined
    ? undefined
    : `allow only kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.* and net.*, or some of them, not ${other}`;
};

const reservable = ["cpu", "memory", "ephemeral-storage", "pid"];

/** Resources reserved for the system: quantities of cpu, memory, ephemeral-storage and pid. */
export const checkReserved: Check<TextMap> = (map) => {
  for (const [resource, quantity] of Object.entries(map)) {
    if (!reservable.includes(resource)) return `reserve only ${reservable.join(", ")}, not ${resource}`;
    const sign = quantitySign(quantity);
    if (sign === undefined || sign < 0) return `set ${resource} to a quantity such as "500Mi" or "200m"`;
  }
  return undefined;
};

/** A gRPC target without TLS; rules and messages are the kubelet's. */
export const checkTracingEndpoint: Check<string> = (endpoint) => {
  const url = URL.parse(endpoint.includes("//") ? endpoint : `dns://${endpoint}`);
  if (!url || endpoint === "")
    return "set the address of a collector, such as localhost:4317 or unix:///run/collector.sock";
  const scheme = url.protocol.slice(0, -1);
  if (["dns", "unix", "unix-abstract"].includes(scheme)) return undefined;
  const naming = "https://github.com/grpc/grpc/blob/master/doc/naming.md";
  return `unsupported scheme: ${scheme}.  Options are none, dns, unix, or unix-abstract.  See ${naming}`;
};

export const checkSamplingRate: Check<number> = (rate) => {
  if (rate < 0) return "sampling rate must be positive";
  return rate > 1_000_000 ? "sampling rate per million must be less than or equal to one million" : undefined;
};
