/** Values in the syntax of Go's flag and duration parsers, which kubelet configurations use. */

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
