import { type DestinationStream, pino } from "pino";
import { klogText } from "./klog-text.ts";

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

/** Standard error, in the format of KubeletConfiguration's `logging.format`. Lines are written at once. */
export function logDestination(format: "json" | "text"): DestinationStream {
  const standardError = pino.destination(2);
  return format === "text" ? klogText(standardError, process.pid) : standardError;
}

/** @param verbosity the kubelet's `-v`: 0 to 2 logs info and above, 3 to 4 debug, 5 and more trace.
 *  @param destination where lines go; standard error by default. */
export function createLogger(verbosity: number, destination: DestinationStream = logDestination("json")): Logger {
  const level = verbosity >= 5 ? "trace" : verbosity >= 3 ? "debug" : "info";
  const paths = secretFields.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]);
  return pino(
    {
      level,
      redact: { paths, censor: "[redacted]" },
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      serializers: { err: errorFields },
    },
    destination,
  );
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
