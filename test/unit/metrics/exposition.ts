import assert from "node:assert/strict";

/** A metric family as parsed by a scraper. */
export interface Family {
  readonly type: string;
  readonly help: string;
  readonly samples: readonly Sample[];
}

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
  /** Milliseconds since the epoch, if the sample has a timestamp. */
  readonly at?: number;
}

const sampleLine = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: (\d+))?$/;
const label = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/y;
const suffixes: Readonly<Record<string, readonly string[]>> = {
  counter: [""],
  gauge: [""],
  histogram: ["_bucket", "_sum", "_count"],
  summary: ["", "_sum", "_count"],
};

/** Parses the text format strictly, and validates samples against their types.
 *  @see https://prometheus.io/docs/instrumenting/exposition_formats/#text-format-details */
export function parseExposition(text: string): Map<string, Family> {
  assert.ok(text.endsWith("\n"), "the last line ends with a line feed");
  const families = new Map<string, { type: string; help: string; samples: Sample[] }>();
  let current = { name: "", help: "" };
  for (const line of text.split("\n")) {
    const [, kind, name = "", said = ""] = /^# (HELP|TYPE) (\S+) (.*)$/.exec(line) ?? [];
    if (kind === "HELP") current = { name, help: said };
    else if (kind === "TYPE") {
      assert.ok(current.name === name && said in suffixes && !families.has(name), line);
      families.set(name, { type: said, help: current.help, samples: [] });
    } else if (line !== "") {
      const family = families.get(current.name) ?? assert.fail(`a sample without a type: ${line}`);
      family.samples.push(parseSample(line, current.name, family.type));
    }
  }
  for (const [name, family] of families) checkFamily(name, family);
  return families;
}

function parseSample(line: string, family: string, type: string): Sample {
  const [, name = "", labels = "", value = "", at] = sampleLine.exec(line) ?? assert.fail(`no sample: ${line}`);
  assert.ok(name.startsWith(family) && suffixes[type]?.includes(name.slice(family.length)), line);
  const sample = { name, labels: parseLabels(labels, line), value: parseValue(value, line) };
  return at === undefined ? sample : { ...sample, at: Number(at) };
}

function checkFamily(name: string, family: Family): void {
  const keys = family.samples.map((sample) => `${sample.name} ${keyOf(sample.labels)}`);
  assert.equal(new Set(keys).size, keys.length, `${name} has a series twice`);
  if (family.type === "counter")
    assert.ok(
      family.samples.every(({ value }) => value >= 0),
      name,
    );
  if (family.type === "histogram") checkHistogram(name, family);
}

function keyOf(labels: Readonly<Record<string, string>>): string {
  return JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function parseLabels(text: string, line: string): Record<string, string> {
  const labels: Record<string, string> = {};
  let at = 0;
  while (at < text.length) {
    label.lastIndex = at;
    const [whole = "", name = "", value = ""] = label.exec(text) ?? assert.fail(`labels: ${line}`);
    assert.ok(!(name in labels), `a label twice: ${line}`);
    labels[name] = value;
    at += whole.length;
  }
  return labels;
}

function parseValue(text: string, line: string): number {
  if (/^[+-]Inf$/.test(text)) return text.startsWith("-") ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  const value = Number(text);
  assert.ok(text === "NaN" || (text !== "" && !Number.isNaN(value)), `value: ${line}`);
  return value;
}

/** Buckets are cumulative and end with +Inf, which equals the count. */
function checkHistogram(name: string, { samples }: Family): void {
  const series = Map.groupBy(samples, ({ labels }) => keyOf({ ...labels, le: "" }));
  for (const [key, own] of series) {
    const buckets = own.filter((sample) => sample.name === `${name}_bucket`);
    const bounds = buckets.map(({ labels }) => parseValue(labels["le"] ?? "", key));
    const values = buckets.map(({ value }) => value);
    assert.deepEqual(
      bounds,
      [...bounds].sort((a, b) => a - b),
      name,
    );
    assert.deepEqual(
      values,
      [...values].sort((a, b) => a - b),
      name,
    );
    assert.equal(bounds.at(-1), Number.POSITIVE_INFINITY, name);
    const [count] = own.filter((sample) => sample.name === `${name}_count`);
    assert.equal(count?.value, values.at(-1), `${name} ${key}`);
    assert.equal(own.filter((sample) => sample.name === `${name}_sum`).length, 1);
  }
}

/** Upper bounds of a histogram's buckets, without +Inf. */
export function boundsOf({ samples }: Family): readonly number[] {
  const bounds = samples.flatMap(({ labels }) => (labels["le"] === undefined ? [] : [parseValue(labels["le"], "le")]));
  return [...new Set(bounds)].filter(Number.isFinite);
}
