/** Milliseconds as Go prints a duration: `1m0s`, `100ms`, `1.5s`, `0s`. @see https://pkg.go.dev/time#Duration.String */
export function goDuration(ms: number): string {
  if (ms === 0) return "0s";
  if (ms < 0) return `-${goDuration(-ms)}`;
  if (ms < 1000) return ms >= 1 ? `${trimmed(ms)}ms` : ms >= 1e-3 ? `${trimmed(ms * 1e3)}µs` : `${trimmed(ms * 1e6)}ns`;
  const hours = Math.floor(ms / 3_600_000);
  const minutes = Math.floor((ms % 3_600_000) / 60_000);
  const seconds = trimmed((ms % 60_000) / 1000);
  return hours > 0 ? `${hours}h${minutes}m${seconds}s` : minutes > 0 ? `${minutes}m${seconds}s` : `${seconds}s`;
}

function trimmed(amount: number): string {
  return String(Number(amount.toFixed(9)));
}

const unitMs: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  μs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

const amountOfUnit = String.raw`(\d+\.?\d*|\.\d+)(${Object.keys(unitMs).join("|")})`;
const durationShape = new RegExp(`^(${amountOfUnit})+$`);
const durationParts = new RegExp(amountOfUnit, "g");

/** Parses a duration such as `1m30s`, `250ms` or `0` to milliseconds; undefined if invalid. @see https://pkg.go.dev/time#ParseDuration */
export function parseDuration(text: string): number | undefined {
  const sign = text.startsWith("-") ? -1 : 1;
  const body = text.replace(/^[-+]/, "");
  if (body === "0") return 0;
  if (!durationShape.test(body)) return undefined;
  let ms = 0;
  for (const [, amount, unit] of body.matchAll(durationParts)) {
    ms += Number(amount) * (unitMs[unit ?? ""] ?? Number.NaN);
  }
  return sign * ms;
}
