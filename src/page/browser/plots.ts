import uPlot from "uplot";
import { make } from "./dom.ts";
import { bytes, bytesPerSecond, cores, known, timeOfDay } from "./format.ts";
import { type Metric, latest } from "./history.ts";
import type { Model, Scope } from "./model.ts";
import { type Line, columnsOf, linesOf, mostLines } from "./series.ts";

interface PlotKind {
  readonly title: string;
  /** Metrics of the plot. The network plot has two: received bytes, and sent bytes as a dashed line. */
  readonly metrics: readonly Metric[];
  readonly as: (value: number) => string;
  /** Grid line increments; powers of two for bytes. */
  readonly steps?: readonly number[];
}

const powers = Array.from({ length: 50 }, (_, power) => 2 ** power);

const kinds: readonly PlotKind[] = [
  { title: "CPU", metrics: ["cpu"], as: cores },
  { title: "Memory", metrics: ["memory"], as: bytes, steps: powers },
  { title: "Network, received and sent (dashed)", metrics: ["rx", "tx"], as: bytesPerSecond, steps: powers },
  { title: "Disk in use", metrics: ["disk"], as: bytes, steps: powers },
];

const height = 150;

/** Creates the four plots. The same line has the same colour in all of them. */
export function createPlots(into: HTMLElement) {
  const plots = kinds.map((kind) => createPlot(kind));
  into.replaceChildren(...plots.map(({ element }) => element));
  let colours = new Map<string, number>();
  let of = "";
  return {
    draw(model: Model, scope: Scope): void {
      const now = JSON.stringify(scope);
      if (of !== now) colours = new Map();
      of = now;
      for (const { draw } of plots) draw(model, scope, colours);
    },
  };
}

function createPlot(kind: PlotKind) {
  const canvas = make("div", { class: "canvas" });
  const legend = make("ul", { class: "legend" });
  const element = make("figure", {}, [make("figcaption", { text: kind.title }), canvas, legend]);
  let plot: uPlot | undefined;
  let drawn = "";
  new ResizeObserver(() => plot?.setSize({ width: canvas.clientWidth, height })).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (drawn = ""));
  return {
    element,
    draw(model: Model, scope: Scope, colours: Map<string, number>) {
      const lines = linesOf(model, scope, kind.metrics[0] ?? "cpu");
      const strokes = coloursOf(lines, colours);
      const both = kind.metrics.flatMap((metric) => lines.map(({ track }) => ({ track, metric })));
      const data = columnsOf(both) as unknown as uPlot.AlignedData;
      const shape = JSON.stringify([lines.map(({ key }) => key), strokes]);
      if (plot && drawn === shape) plot.setData(data);
      else {
        plot?.destroy();
        plot = new uPlot(optionsOf(kind, lines, strokes, canvas.clientWidth), data, canvas);
        drawn = shape;
      }
      legend.replaceChildren(...lines.map((line, index) => legendOf(kind, line, strokes[index] ?? "")));
      element.classList.toggle("empty", lines.length === 0);
    },
  };
}

function legendOf({ metrics, as }: PlotKind, { label, track }: Line, colour: string): Node {
  const swatch = make("i");
  swatch.style.background = colour;
  const values = metrics.map((metric) => known(latest(track, metric), as)).join(" / ");
  return make("li", { title: label }, [swatch, make("span", { text: label }), make("b", { text: values })]);
}

/** Assigns each line a colour, unique within a plot: the line's colour in other plots if it is free here. */
function coloursOf(lines: readonly Line[], colours: Map<string, number>): readonly string[] {
  const taken = new Set<number>();
  return lines.map(({ key }) => {
    const known = colours.get(key);
    const index = known !== undefined && !taken.has(known) ? known : firstBut(taken);
    taken.add(index);
    if (known === undefined) colours.set(key, index);
    return variable(`--line-${index + 1}`);
  });
}

function firstBut(taken: ReadonlySet<number>): number {
  return Array.from({ length: mostLines }, (_, index) => index).find((index) => !taken.has(index)) ?? 0;
}

function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function optionsOf(kind: PlotKind, lines: readonly Line[], strokes: readonly string[], width: number): uPlot.Options {
  const axis = { stroke: variable("--faint"), grid: { stroke: variable("--grid"), width: 1 }, ticks: { show: false } };
  const series = kind.metrics.flatMap((_, second) =>
    lines.map(({ label }, index) => ({
      label,
      stroke: strokes[index] ?? "",
      width: 1.5,
      spanGaps: true,
      points: { show: false },
      ...(second > 0 && { dash: [4, 3] }),
    })),
  );
  const font = "11px system-ui";
  return {
    width,
    height,
    series: [{}, ...series],
    scales: { y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: [
      { ...axis, space: 80, size: 28, font, values: (_plot, splits) => splits.map(timeOfDay) },
      {
        ...axis,
        size: 70,
        font,
        values: (_plot, splits) => splits.map((value) => kind.as(value)),
        ...(kind.steps && { incrs: [...kind.steps] }),
      },
    ],
    legend: { show: false },
    cursor: { y: false, points: { size: 5 } },
  };
}
