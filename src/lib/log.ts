import { getCallSites } from "node:util";
import { type DestinationStream, pino } from "pino";
import type { Clock } from "./clock.ts";
import { klogText } from "./klog-text.ts";
import { boundedFields, boundedText, createLineLimit } from "./line-limit.ts";
import { type FileVerbosity, type Verbosity, createVerbosity } from "./verbosity.ts";

/** The logger interface: fields first, then a short message. */
export interface Logger {
  trace(fields: object, message: string): void;
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  child(fields: object): Logger;
}

/** Log methods that most components need. */
export interface ClockAndLog {
  readonly clock: Clock;
  readonly log: Logger;
}

/** Field names whose values are redacted at any depth. */
const secretFields = [
  "token",
  "password",
  "auth",
  "identityToken",
  "registryToken",
  "authorization",
  "data",
  "stringData",
];

/** klog's verbosity for each level; 0 is always written. */
const levels = { trace: 5, debug: 3, info: 0, warn: 0, error: 0 } as const;

/** The log of a process on standard error, and its verbosity. Lines are written synchronously. Lines with the same message about
 *  the same node are limited to a burst of 200 and 5 a second; the next line says how many were dropped.
 *  @param logging the `logging` field of KubeletConfiguration.
 *  @param read called with each written line as redacted JSON, regardless of the log's format. */
export function createProcessLog(
  logging: {
    readonly format: "json" | "text";
    readonly verbosity: number;
    readonly vmodule: readonly FileVerbosity[];
  },
  clock: Pick<Clock, "monotonic">,
  read?: (line: string) => void,
): { readonly log: Logger; readonly verbosity: Verbosity } {
  const verbosity = createVerbosity(logging.verbosity, logging.vmodule);
  const standardError = standardErrorStream();
  const newLimit = () => createLineLimit(clock);
  const log =
    logging.format === "json"
      ? createLogger(verbosity, readBy(read, standardError), newLimit)
      : createTextLogger(verbosity, standardError, { pid: process.pid, read, newLimit });
  return { log, verbosity };
}

/** Standard error that survives write errors, such as a file on a full disk: lines are lost then. A failed stream keeps what
 *  it could not write and delays the end of the process, so it is replaced by a new one. */
function standardErrorStream(): DestinationStream {
  let stream: ReturnType<typeof pino.destination> | undefined;
  const open = () => {
    const opened = pino.destination(2);
    opened.on("error", () => {
      opened.destroy();
      if (stream === opened) stream = undefined;
    });
    return opened;
  };
  return {
    write(line) {
      stream ??= open();
      stream.write(line);
    },
  };
}

/** A destination that also passes each line (redacted JSON) to a reader. */
function readBy(read: ((line: string) => void) | undefined, destination: DestinationStream): DestinationStream {
  if (!read) return destination;
  return {
    write(line) {
      destination.write(line);
      read(line);
    },
  };
}

/** @param verbosity the kubelet's `-v`: 0 to 2 logs info and above, 3 to 4 debug, 5 and more trace.
 *  @param destination where lines of JSON go; standard error by default.
 *  @param newLimit makes the limit of lines, once for the process and once for each node. */
export function createLogger(
  verbosity: number | Verbosity,
  destination: DestinationStream = pino.destination(2),
  newLimit?: NewLimit,
): Logger {
  return selectiveLogger(pinoTo(destination), verbosityOf(verbosity), { newLimit });
}

type NewLimit = () => ReturnType<typeof createLineLimit>;

/** Like createLogger, in the kubelet's text format; each line names its source location.
 *  @param process its pid, and an optional reader of its lines as JSON. */
export function createTextLogger(
  verbosity: number | Verbosity,
  destination: DestinationStream,
  {
    pid,
    read,
    newLimit,
  }: {
    readonly pid: number;
    readonly read?: ((line: string) => void) | undefined;
    readonly newLimit?: NewLimit;
  },
): Logger {
  const text = readBy(read, klogText(destination, pid));
  return selectiveLogger(pinoTo(text), verbosityOf(verbosity), { placeOf: createSourcePlaces(), newLimit });
}

function verbosityOf(verbosity: number | Verbosity): Verbosity {
  return typeof verbosity === "number" ? createVerbosity(verbosity) : verbosity;
}

function pinoTo(destination: DestinationStream): Logger {
  const paths = secretFields.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]);
  return pino(
    {
      level: "trace",
      redact: { paths, censor: "[redacted]" },
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      serializers: { err: errorFields },
      formatters: { log: boundedFields },
    },
    destination,
  );
}

interface Writing {
  readonly placeOf?: ReturnType<typeof createSourcePlaces> | undefined;
  readonly newLimit?: NewLimit | undefined;
}

/** A logger that writes the lines that the verbosity allows. A suppressed line costs one comparison. */
function selectiveLogger(
  to: Logger,
  verbosity: Verbosity,
  { newLimit, placeOf }: Writing,
  limit = newLimit?.(),
): Logger {
  const write = (kind: keyof typeof levels) => (fields: object, message: string) => {
    const level = levels[kind];
    if (level > verbosity.current() && !verbosity.byFile) return;
    // Lines enabled by verbosity are not limited.
    const leftOut = level === 0 ? (limit ? limit(message) : 0) : 0;
    if (leftOut === undefined) return;
    const all = leftOut === 0 ? fields : { ...fields, leftOut };
    if (!placeOf) return to[kind](all, message);
    const { file, line } = placeOf(1);
    if (verbosity.shows(level, file)) to[kind]({ ...all, caller: `${file}:${line}` }, message);
  };
  return {
    trace: write("trace"),
    debug: write("debug"),
    info: write("info"),
    warn: write("warn"),
    error: write("error"),
    child: (fields) =>
      selectiveLogger(to.child(fields), verbosity, { newLimit, placeOf }, "node" in fields ? newLimit?.() : limit),
  };
}

/** Converts an error to fields: message and code along the chain of causes; no request or response objects, which may hold
 *  secrets. */
function errorFields(error: unknown): unknown {
  if (!(error instanceof Error)) return String(error);
  const code = "code" in error ? error.code : undefined;
  return {
    message: boundedText(error.message),
    ...(typeof code === "string" && { code }),
    ...(error.stack && code === undefined && { stack: boundedText(error.stack) }),
    ...(error.cause !== undefined && { cause: errorFields(error.cause) }),
  };
}

/** A silent logger, for commands that print their own output. */
export function silentLog(): Logger {
  return createLogger(0, { write: () => undefined });
}

/** In the built file: `line:column` there to `file.ts:line` of the source, as JSON (tools/source-places.ts). */
declare const __sourcePlaces: string | undefined;

interface SourcePlace {
  /** Name of the file, without its directory. */
  readonly file: string;
  readonly line: number;
}

/** Finds source locations of callers: `above` frames above the caller of the returned function. */
function createSourcePlaces(): (above: number) => SourcePlace {
  let known: Readonly<Record<string, string>> | undefined;
  return (above) => {
    const site = getCallSites(above + 2)[above + 1];
    if (!site) return { file: "main.ts", line: 1 };
    known ??= typeof __sourcePlaces === "string" ? (JSON.parse(__sourcePlaces) as Record<string, string>) : {};
    const [file = "", line] = known[`${site.lineNumber}:${site.columnNumber}`]?.split(":") ?? [];
    if (line !== undefined) return { file, line: Number(line) };
    return { file: site.scriptName.slice(site.scriptName.lastIndexOf("/") + 1), line: site.lineNumber };
  };
}
