// A session of a terminal as an animated SVG: no script, no font, nothing fetched; a picture of a page can show it.

/** A line that a session printed. */
export interface Line {
  /** When, in milliseconds from the session's beginning. */
  readonly at: number;
  readonly text: string;
}

export interface Look {
  readonly columns: number;
  readonly rows: number;
  /** Title of the picture, for those who do not see it. */
  readonly title: string;
  /** The longest that nothing moves, in milliseconds; longer waits are cut to that. */
  readonly longestPause: number;
  /** Milliseconds that a reader has for each line of a command before the next command. */
  readonly toRead: number;
}

const width = 8.4;
const height = 18;
const margin = 14;

/** Lines scroll through a window as they were printed, at a pace that can be read, and begin anew some seconds after the last one. Those
 *  who want less motion see the end. Pure. @throws when there is no line. */
export function terminalSvg(lines: readonly Line[], look: Look): string {
  const { columns, rows, title } = look;
  const last = lines.at(-1);
  if (last === undefined) throw new Error("there is no line to show");
  const times = shown(lines, look);
  const total = (times.at(-1) ?? 0) + 4 * look.longestPause;
  const size = { x: Math.round(columns * width + 2 * margin), y: rows * height + 2 * margin };
  const texts = lines.map(({ text }, index) => textOf(text, columns, (index + 1) * height));
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${size.x} ${size.y}" width="${size.x}" height="${size.y}" role="img">
<title>${escaped(title)}</title>
<style>
text{font:14px ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono",monospace;fill:#d0d7de;white-space:pre}
.c{fill:#7ee2a8;font-weight:600}.h{fill:#ffd166;font-weight:600}
.s{animation:s ${(total / 1000).toFixed(1)}s step-end infinite;transform:translateY(${offset(lines.length, rows)}px)}
@keyframes s{${keyframes(times, total, rows)}}
@media(prefers-reduced-motion:reduce){.s{animation:none}}
</style>
<rect width="${size.x}" height="${size.y}" rx="10" fill="#0d1117" stroke="#30363d"/>
<clipPath id="w"><rect x="${margin}" y="${margin}" width="${size.x - 2 * margin}" height="${rows * height}"/></clipPath>
<g clip-path="url(#w)"><g transform="translate(${margin} ${margin - 4})"><g class="s">
${texts.filter((text) => text !== "").join("\n")}
</g></g></g>
</svg>
`;
}

/** When each line is shown, in milliseconds. */
function shown(lines: readonly Line[], { longestPause, toRead }: Look): readonly number[] {
  let time = 0;
  let begun = { time: 0, index: 0 };
  return lines.map(({ at, text }, index) => {
    time += Math.min(longestPause, at - (lines[index - 1]?.at ?? at));
    if (kindOf(text) !== undefined) {
      time = Math.max(time, begun.time + toRead * (index - begun.index));
      begun = { time, index };
    }
    return time;
  });
}

/** The style's name of a command or a heading; undefined for what is printed. */
function kindOf(text: string): "c" | "h" | undefined {
  return text.startsWith("$ ") ? "c" : text.startsWith("── ") ? "h" : undefined;
}

/** How far the lines are moved when so many have been printed: the newest stands at the window's foot, if they fill it. */
function offset(printed: number, rows: number): number {
  return (rows - printed) * height;
}

/** One step for all lines of the same moment. */
function keyframes(times: readonly number[], total: number, rows: number): string {
  const steps = new Map<string, number>();
  times.forEach((time, index) => steps.set(((100 * time) / total).toFixed(2), index + 1));
  return [...steps].map(([at, printed]) => `${at}%{transform:translateY(${offset(printed, rows)}px)}`).join("");
}

function textOf(text: string, columns: number, y: number): string {
  if (text.trim() === "") return "";
  const kind = kindOf(text);
  const fitting = text.length > columns ? `${text.slice(0, columns - 1)}…` : text;
  return `<text y="${y}"${kind ? ` class="${kind}"` : ""} xml:space="preserve">${escaped(fitting)}</text>`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
