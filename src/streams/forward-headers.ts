import type { Headers } from "./spdy/header-block.ts";

/** Headers of a port-forward's stream: each connection has two with the same name, one for data and one for errors. */
export interface ForwardHeaders {
  readonly kind: "error" | "data";
  readonly port: number;
  /** Name shared by the two streams of a connection. */
  readonly connection: string;
}

/** Maximum length of a connection's name, bytes: clients use counters or random numbers. */
const maxNameLength = 256;

/** Parses a stream's headers; undefined if they are not those of a port-forward. Clients without connection names open the streams of a
 *  connection one after the other, error stream first.
 *  @see https://github.com/kubernetes/cri-streaming (portforward) */
export function parseForwardHeaders(id: number, headers: Headers): ForwardHeaders | undefined {
  const kind = headers.get("streamtype");
  const port = parsePort(headers.get("port") ?? "");
  if ((kind !== "error" && kind !== "data") || port === undefined) return undefined;
  const connection = headers.get("requestid") || `after ${kind === "error" ? id : id - 2}`;
  return connection.length > maxNameLength ? undefined : { kind, port, connection };
}

function parsePort(text: string): number | undefined {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 0xffff ? port : undefined;
}
