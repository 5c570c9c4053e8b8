import type { HttpGet } from "../../../src/pod/http-action.ts";
import type { ServerKind } from "./servers.ts";

/** One server, asked in one way by both clients. */
export interface HttpCase {
  readonly name: string;
  readonly server: ServerKind;
  readonly action?: Partial<HttpGet>;
  /** Whose client asks; a probe's unless given. */
  readonly kind?: "probe" | "hook";
  /** The probe's time; plenty unless given. */
  readonly timeoutMs?: number;
  /** The pod's address, 127.0.0.1 unless given. */
  readonly podIP?: string;
}

/** A text for a case's name. */
export const shown = (text: string): string =>
  JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…${text.length}` : text);

/** Header fields as a probe has them. */
export const headersOf = (pairs: readonly [string, string][]) => pairs.map(([name, value]) => ({ name, value }));

export const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
