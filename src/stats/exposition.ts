/** Metrics of one name. */
export interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge";
  readonly samples: readonly Point[];
}

export interface Point {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
  /** Time of measurement, milliseconds since the epoch; without it a scraper uses the time of its request. */
  readonly at?: number;
}

/** Prometheus' text format with timestamps, which its client for Node.js omits; families without samples are omitted.
 *  @see https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format */
export function exposition(families: readonly Family[]): string {
  const lines = families
    .filter(({ samples }) => samples.length > 0)
    .flatMap(({ name, help, type, samples }) => [
      `# HELP ${name} ${help}`,
      `# TYPE ${name} ${type}`,
      ...samples.map((sample) => line(name, sample)),
    ]);
  return `${lines.join("\n")}\n`;
}

function line(name: string, { labels, value, at }: Point): string {
  const labelTexts = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`);
  const series = labelTexts.length > 0 ? `${name}{${labelTexts.join(",")}}` : name;
  return at === undefined ? `${series} ${number(value)}` : `${series} ${number(value)} ${Math.round(at)}`;
}

function number(value: number): string {
  if (Number.isFinite(value)) return String(value);
  return Number.isNaN(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
}

function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
