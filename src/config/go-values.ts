/** Values in the syntax of Go's flag and duration parsers, which kubelet configurations use. */

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

/** Parses a boolean as Go's flags do (`1 t T TRUE true True` and their opposites); undefined if invalid.
 *  @see https://pkg.go.dev/strconv#ParseBool */
export function parseBool(text: string): boolean | undefined {
  if (/^(1|t|T|TRUE|true|True)$/.test(text)) return true;
  if (/^(0|f|F|FALSE|false|False)$/.test(text)) return false;
  return undefined;
}

/** Parses a decimal, 0x, 0o or 0b integer; undefined if invalid or not exactly representable.
 *  @see https://pkg.go.dev/strconv#ParseInt (base 0) */
export function parseInteger(text: string): number | undefined {
  const match = /^([-+]?)(0x[0-9a-f]+|0o?[0-7]+|0b[01]+|\d+)$/i.exec(text.replaceAll("_", ""));
  if (!match?.[2]) return undefined;
  const digits = match[2].replace(/^0(?=[0-7]+$)/, "0o");
  const value = Number(digits) * (match[1] === "-" ? -1 : 1);
  return Number.isSafeInteger(value) ? value + 0 : undefined;
}

const quantityShape = /^([-+]?)(\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+|[numkMGTPE]|[KMGTPE]i)?$/;

/** Sign of a resource quantity such as `500Mi` or `200m`: -1, 0 or 1; undefined if invalid.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/ */
export function quantitySign(text: string): -1 | 0 | 1 | undefined {
  const match = quantityShape.exec(text);
  if (!match) return undefined;
  if (Number(match[2]) === 0) return 0;
  return match[1] === "-" ? -1 : 1;
}
