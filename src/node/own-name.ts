import { Resolver } from "node:dns/promises";
import { readFile } from "node:fs/promises";
import { isIP, isIPv4 } from "node:net";
import { throwIfAborted } from "../lib/errors.ts";
import { addAbortListener } from "node:events";
import { networkInterfaces } from "node:os";

/** Sources of the machine's host names. */
export interface NameSources {
  /** Reads a file of graftlet's own machine. */
  readonly readFile: (path: string) => Promise<string>;
  /** A resolver with the current name servers. */
  readonly resolver: () => Pick<Resolver, "resolve4" | "resolve6" | "cancel">;
}

const nameServerTimeoutMs = 2_000;

const ownSources: NameSources = {
  readFile: (path) => readFile(path, "utf8"),
  resolver: () => new Resolver({ timeout: nameServerTimeoutMs, tries: 2 }),
};

/** Error codes that mean that a name does not exist. */
const denials = ["ENOTFOUND", "ENODATA"];

/** Returns true if a node's name resolves on graftlet's own machine: through /etc/hosts, or a name server, including the search domains.
 *  The system's resolver is not used: it blocks a thread until it has an answer, and the process could not exit meanwhile.
 *  @throws the name servers' error, if none has answered. */
export async function nameResolves(name: string, signal: AbortSignal, sources = ownSources): Promise<boolean> {
  if (isIP(name) !== 0 || (await isInHosts(name, sources))) return true;
  const domains = await searchDomains(sources);
  throwIfAborted(signal);
  const resolver = sources.resolver();
  using _ = addAbortListener(signal, () => resolver.cancel());
  const names = [name, ...domains.map((domain) => `${name}.${domain}`)];
  const answers = await Promise.allSettled(names.flatMap((each) => [resolver.resolve4(each), resolver.resolve6(each)]));
  throwIfAborted(signal);
  if (answers.some((answer) => answer.status === "fulfilled" && answer.value.length > 0)) return true;
  const failed = answers.find((answer) => answer.status === "rejected" && !isDenial(answer.reason));
  if (failed?.status === "rejected") throw failed.reason;
  return false;
}

function isDenial(error: unknown): boolean {
  return error instanceof Error && "code" in error && denials.includes(String(error.code));
}

async function isInHosts(name: string, { readFile: read }: NameSources): Promise<boolean> {
  const lines = await linesOf("/etc/hosts", read);
  return lines.some(([, ...names]) => names.some((each) => each.toLowerCase() === name.toLowerCase()));
}

/** The search domains of /etc/resolv.conf, from its last `search` or `domain` line. */
async function searchDomains({ readFile: read }: NameSources): Promise<readonly string[]> {
  const lines = await linesOf("/etc/resolv.conf", read);
  const [, ...domains] = lines.findLast(([keyword]) => keyword === "search" || keyword === "domain") ?? [];
  return domains.map((domain) => domain.replace(/\.$/, "")).filter((domain) => domain !== "");
}

/** Words of each line, without comments; no lines for a missing file. */
async function linesOf(path: string, read: NameSources["readFile"]): Promise<readonly (readonly string[])[]> {
  const text = await read(path).catch(() => "");
  return text.split("\n").map((line) =>
    line
      .replace(/[#;].*/, "")
      .trim()
      .split(/\s+/),
  );
}

/** Addresses of the machine that graftlet runs on, IPv4 before IPv6, without loopback and link-local ones. */
export function ownAddresses(): readonly string[] {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  const usable = all
    .filter(({ internal, address }) => !internal && !/^(169\.254\.|fe80:)/i.test(address))
    .map(({ address }) => address);
  return [...usable.filter((address) => isIPv4(address)), ...usable.filter((address) => !isIPv4(address))];
}
