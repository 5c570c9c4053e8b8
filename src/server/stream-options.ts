import type { IncomingHttpHeaders } from "node:http";
import { goQuote } from "../lib/go-quote.ts";

export interface StreamOptions {
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** Streams requested by an exec or attach, from the kubelet's parameters input, output, error and tty; a terminal has no separate stderr.
 *  Undefined if none is requested. */
export function streamOptions(query: URLSearchParams): StreamOptions | undefined {
  const wants = (name: string) => query.get(name) === "1";
  const tty = wants("tty");
  const options = { stdin: wants("input"), stdout: wants("output"), stderr: wants("error") && !tty, tty };
  return options.stdin || options.stdout || options.stderr ? options : undefined;
}

export type ForwardedPorts =
  | { readonly kind: "ports"; readonly ports: readonly number[] }
  | { readonly kind: "invalid"; readonly text: string };

/** Maximum number of ports in one request: each has two of the 256 channels of the protocol. */
const maxPorts = 128;
const tunnelProtocol = "SPDY/3.1+portforward.k8s.io";

/** Ports in the query of a port-forward over WebSocket; over SPDY, including SPDY tunnelled through a WebSocket, each stream names its
 *  own. */
export function forwardedPorts(headers: IncomingHttpHeaders, query: URLSearchParams): ForwardedPorts {
  const protocols = (headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  const ownChannels = headers.upgrade?.toLowerCase() === "websocket" && !protocols.includes(tunnelProtocol);
  if (!ownChannels) return { kind: "ports", ports: [] };
  const values = query.getAll("port");
  if (values.length === 0) return { kind: "invalid", text: 'query parameter "port" is required' };
  const ports: number[] = [];
  for (const value of values) {
    if (value === "") return { kind: "invalid", text: 'query parameter "port" cannot be empty' };
    for (const one of value.split(",", maxPorts + 1)) {
      const port = /^\d+$/.test(one) ? Number(one) : NaN;
      if (!(port <= 65535)) {
        const why = `parsing ${goQuote(one)}: ${Number.isNaN(port) ? "invalid syntax" : "value out of range"}`;
        return { kind: "invalid", text: `unable to parse ${goQuote(value)} as a port: strconv.ParseUint: ${why}` };
      }
      if (port < 1) return { kind: "invalid", text: `port ${goQuote(value)} must be > 0` };
      ports.push(port);
      if (ports.length > maxPorts)
        return { kind: "invalid", text: `query parameter "port" names more than ${maxPorts} ports: request fewer` };
    }
  }
  return { kind: "ports", ports };
}
