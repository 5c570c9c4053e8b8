import { type DestinationStream, pino } from "pino";
import { klogText } from "./klog-text.ts";
import { createSourcePlaces } from "./source-place.ts";
import { type FileVerbosity, type Verbosity, createVerbosity } from "./verbosity.ts";

/** The logger interface: fields first, then a short sentence. */
export interface Logger {
  trace(fields: object, message: string): void;
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  child(fields: object): Logger;
}

/** Field names whose values never reach a log, wherever they stand. */
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

/** Each kind of line in klog's levels; 0 is always written. */
const levels = { trace: 5, debug: 3, info: 0, warn: 0, error: 0 } as const;

/** The log of a process on standard error, and how much is written of it. Lines are written at once.
 *  @param logging the group of that name of KubeletConfiguration.
 *  @param read is given each line that is written, JSON and redacted, whatever the format. */
export function createProcessLog(
  logging: {
    readonly format: "json" | "text";
    readonly verbosity: number;
    readonly vmodule: readonly FileVerbosity[];
  },
  read?: (line: string) => void,
): { readonly log: Logger; readonly verbosity: Verbosity } {
  const verbosity = createVerbosity(logging.verbosity, logging.vmodule);
  const standardError = pino.destination(2);
  const log =
    logging.format === "json"
      ? createLogger(verbosity, readBy(read, standardError))
      : createTextLogger(verbosity, standardError, { pid: process.pid, read });
  return { log, verbosity };
}

/** A destination whose lines, JSON and redacted, are read on their way. */
export function readBy(read: ((line: string) => void) | undefined, destination: DestinationStream): DestinationStream {
  if (!read) return destination;
  return {
    write(line) {
      destination.write(line);
      read(line);
    },
  };
}

/** @param verbosity the kubelet's `-v`: 0 to 2 logs info and above, 3 to 4 debug, 5 and more trace.
 *  @param destination where lines of JSON go; standard error by default. */
export function createLogger(
  verbosity: number | Verbosity,
  destination: DestinationStream = pino.destination(2),
): Logger {
  return new SelectiveLogger(pinoTo(destination), verbosityOf(verbosity));
}

/** As createLogger, in the kubelet's text format; each line names its place in the source.
 *  @param process its pid, and who reads its lines as JSON, if anybody does. */
export function createTextLogger(
  verbosity: number | Verbosity,
  destination: DestinationStream,
  { pid, read }: { readonly pid: number; readonly read?: ((line: string) => void) | undefined },
): Logger {
  const text = readBy(read, klogText(destination, pid));
  return new SelectiveLogger(pinoTo(text), verbosityOf(verbosity), createSourcePlaces());
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
    },
    destination,
  );
}

/** Writes the lines that the verbosity shows. A line that it does not show costs a comparison. */
class SelectiveLogger implements Logger {
  readonly #to: Logger;
  readonly #verbosity: Verbosity;
  readonly #placeOf: ReturnType<typeof createSourcePlaces> | undefined;

  constructor(to: Logger, verbosity: Verbosity, placeOf?: ReturnType<typeof createSourcePlaces>) {
    this.#to = to;
    this.#verbosity = verbosity;
    this.#placeOf = placeOf;
  }

  trace(fields: object, message: string): void {
    this.#write("trace", fields, message);
  }
  debug(fields: object, message: string): void {
    this.#write("debug", fields, message);
  }
  info(fields: object, message: string): void {
    this.#write("info", fields, message);
  }
  warn(fields: object, message: string): void {
    this.#write("warn", fields, message);
  }
  error(fields: object, message: string): void {
    this.#write("error", fields, message);
  }
  child(fields: object): Logger {
    return new SelectiveLogger(this.#to.child(fields), this.#verbosity, this.#placeOf);
  }

  #write(kind: keyof typeof levels, fields: object, message: string): void {
    const level = levels[kind];
    if (level > this.#verbosity.current() && !this.#verbosity.byFile) return;
    if (!this.#placeOf) return this.#to[kind](fields, message);
    const { file, line } = this.#placeOf(2);
    if (this.#verbosity.shows(level, file)) this.#to[kind]({ ...fields, caller: `${file}:${line}` }, message);
  }
}

/** An error as fields: message and code along the chain of causes; no request or response objects, which may hold secrets. */
function errorFields(error: unknown): unknown {
  if (!(error instanceof Error)) return String(error);
  const code = "code" in error ? error.code : undefined;
  return {
    message: error.message,
    ...(typeof code === "string" && { code }),
    ...(error.stack && code === undefined && { stack: error.stack }),
    ...(error.cause !== undefined && { cause: errorFields(error.cause) }),
  };
}

/** A silent logger, for commands that print their own output. */
export function silentLog(): Logger {
  return createLogger(0, { write: () => undefined });
}
