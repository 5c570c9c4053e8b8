// Formats numbers for display.

const binary = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes with about three digits: `1.5 GiB`. */
export function bytes(value: number): string {
  const power = value < 1 ? 0 : Math.min(binary.length - 1, Math.floor(Math.log2(value) / 10));
  return `${short(value / 1024 ** power)} ${binary[power]}`;
}

export function bytesPerSecond(value: number): string {
  return `${bytes(value)}/s`;
}

/** CPU cores; values below one in millicores, as Kubernetes writes them. */
export function cores(value: number): string {
  return value === 0 ? "0" : value < 1 ? `${short(value * 1000)}m` : short(value);
}

/** A duration in its largest unit, as in kubectl's AGE column. @param ms milliseconds. */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

/** Local time of day, such as `15:04:05`. @param seconds since the epoch. */
export function timeOfDay(seconds: number): string {
  return new Date(seconds * 1000).toTimeString().slice(0, 8);
}

/** `1 pod`, `2 pods`. */
export function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** Formats a value, or a dash if it is unknown. */
export function known(value: number | undefined, as: (value: number) => string): string {
  return value === undefined ? "–" : as(value);
}

function short(value: number): string {
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
