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
  /** When it was so, milliseconds since the epoch; without it a scraper takes the time of its asking. */
  readonly at?: number;
}

/** The text format of Prometheus, with the times that its client for Node.js leaves out; families without samples are not shown.
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
  const said = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`);
  const series = said.length > 0 ? `${name}{${said.join(",")}}` : name;
  return at === undefined ? `${series} ${number(value)}` : `${series} ${number(value)} ${Math.round(at)}`;
}

function number(value: number): string {
  if (Number.isFinite(value)) return String(value);
  return Number.isNaN(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
}

function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
