import { hasCode, messageOf } from "../lib/errors.ts";
import { joinHostPort } from "../lib/http-get.ts";

/** Go's texts for these errors. */
const errnoTexts: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connect: connection refused",
  ECONNRESET: "connect: connection reset by peer",
  ENOENT: "connect: no such file or directory",
  EHOSTUNREACH: "connect: no route to host",
  ENETUNREACH: "connect: network is unreachable",
};

/** Text of a failed dial, as the kubelet (Go) prints it. */
export function dialFailure(error: unknown, host: string, port: number): string {
  if (errnoText(error, { ENOTFOUND: "no such host" })) return `dial tcp: lookup ${host}: no such host`;
  const why = hasCode(error, "deadline_exceeded") ? "i/o timeout" : (errnoText(error, errnoTexts) ?? messageOf(error));
  return `dial tcp ${joinHostPort(host, port)}: ${why}`;
}

/** Text of a failed dial of a Unix socket, as the kubelet (Go) prints it. */
export function unixDialFailure(error: unknown, path: string): string {
  return `dial unix ${path}: ${errnoText(error, errnoTexts) ?? messageOf(error)}`;
}

/** Text of a broken connection, as the kubelet (Go) prints it. */
export function brokenConnection(error: unknown): string {
  // Node.js's own error for a connection that was closed cleanly but too early: no system call failed.
  if (error instanceof Error && "code" in error && error.code === "ECONNRESET" && !("syscall" in error)) return "EOF";
  return (
    errnoText(error, { ECONNRESET: "read: connection reset by peer", EPIPE: "write: broken pipe" }) ?? messageOf(error)
  );
}

/** The text of the first error in the chain of causes whose errno is in the table. */
function errnoText(error: unknown, texts: Readonly<Record<string, string>>): string | undefined {
  for (let at = error; at instanceof Error; at = at.cause) {
    const text = "code" in at && typeof at.code === "string" ? texts[at.code] : undefined;
    if (text !== undefined) return text;
  }
  return undefined;
}
