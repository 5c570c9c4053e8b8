import { posix } from "node:path";
import { PassThrough, Readable, type Writable } from "node:stream";
import { finished, pipeline } from "node:stream/promises";
import { constants, createGzip } from "node:zlib";
import { readLines } from "../../host/command-lines.ts";
import { hasCode, messageOf } from "../../lib/errors.ts";
import { type Argv, command } from "../../seams/command.ts";
import type { HostProcess } from "../../seams/host.ts";
import type { Exchange } from "../access-check.ts";
import { isLog, readBlocks, root } from "../system-log-files.ts";
import { type LogQuery, isPlain, journalCommand, logQueryError, parseLogQuery } from "../log-query.ts";
import { queryOf } from "../path.ts";
import type { KubeletServerDeps } from "../ports.ts";
import { sendText } from "../responses.ts";

type LogQueryDeps = Pick<KubeletServerDeps, "files" | "spawn" | "runtime" | "podLogsDir" | "clock" | "log">;

/** A file of /var/log. */
export interface LogPath {
  readonly segments: readonly string[];
  /** True if the caller expects a directory. */
  readonly isDirectory: boolean;
}

/** Time for all logs of a query, milliseconds; the kubelet's. */
const timeoutMs = 30_000;
const listUnits = command("journalctl", [["--field", "_SYSTEMD_UNIT"]]);
const leadsOut = "path escapes from parent";

/** Node log query: the journal of services, or files of /var/log that have their names.
 *  @returns `none` for a request without a query, `done` after the response, or the file that the query names.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#log-query */
export function logQuery(
  deps: LogQueryDeps,
): (segments: readonly string[], exchange: Exchange) => Promise<"none" | "done" | LogPath> {
  return async (segments, exchange) => {
    const { request, response, signal } = exchange;
    const refuse = (status: number, text: string) => {
      sendText(response, status, `${text}\n`);
      return "done" as const;
    };
    const parsed = parseLogQuery(queryOf(request.originalUrl));
    if (parsed.kind === "none") return "none";
    if (parsed.kind === "malformed") return refuse(400, parsed.text);
    const { query } = parsed;
    if (segments.length > 0) return refuse(406, "path not allowed in query mode");
    const wrong = await logQueryError(query, (file) => unreadable(deps, file, signal));
    if (wrong !== undefined) return refuse(406, wrong);
    const [file] = query.files;
    if (file !== undefined) return { segments: segmentsOf(file), isDirectory: file.endsWith("/") };
    await sendServices(deps, query, exchange);
    return "done";
  };
}

function segmentsOf(file: string): string[] {
  return file.split("/").filter((segment) => segment !== "");
}

/** Why a file of a query cannot be read, in Go's words; undefined if it can. */
async function unreadable(deps: LogQueryDeps, file: string, signal: AbortSignal): Promise<string | undefined> {
  const failed = (why: string) => `statat ${file}: ${why}`;
  if (segmentsOf(file).includes("..") || file.includes("\0")) return failed(leadsOut);
  try {
    const path = await deps.files.realpath(posix.join(root, file), signal);
    return (await isLog(deps, path, signal)) ? undefined : failed(leadsOut);
  } catch (error) {
    if (hasCode(error, "not_found")) return failed("no such file or directory");
    if (hasCode(error, "unavailable", "cancelled")) throw error;
    return failed(messageOf(error));
  }
}

/** Sends the logs of services, compressed for clients that accept nothing but gzip. */
async function sendServices(
  deps: LogQueryDeps,
  query: LogQuery,
  { request, response, signal }: Exchange,
): Promise<void> {
  const within = deps.clock.within(timeoutMs, signal);
  const units = await unitsIn(deps, query.services, within);
  response.status(200).setHeader("Content-Type", "text/plain;charset=UTF-8");
  const out = new PassThrough();
  const isZipped = request.headers["accept-encoding"] === "gzip";
  if (isZipped) response.setHeader("Content-Encoding", "gzip");
  const sent = isZipped
    ? pipeline(out, createGzip({ level: constants.Z_BEST_SPEED }), response, { signal })
    : pipeline(out, response, { signal });
  const written = copyServices(deps, { query, units, out }, within).then(
    () => out.end(),
    (error: unknown) => out.destroy(new Error("cannot read log on the target", { cause: error })),
  );
  await Promise.all([sent, written]);
}

interface Copy {
  readonly query: LogQuery;
  /** Requested services that have a unit in the journal. */
  readonly units: ReadonlySet<string>;
  readonly out: Writable;
}

async function copyServices(deps: LogQueryDeps, { query, units, out }: Copy, signal: AbortSignal): Promise<void> {
  const { services, options } = query;
  const others = services.filter((service) => !units.has(service));
  const inJournal = services.filter((service) => units.has(service));
  if (inJournal.length > 0) await copyJournal(deps, { ...query, services: inJournal }, out, signal);
  if (others.length === 0) return;
  if (!isPlain({ options })) {
    const files = `[${others.join(" ")}]`;
    out.write(`\noptions present and query resolved to log files for ${files}\ntry without specifying options\n`);
    return;
  }
  for (const service of others) await copyFile(deps, service, out, signal);
}

/** The services with a unit in the journal; none without a journal. */
async function unitsIn(
  { spawn, log }: LogQueryDeps,
  services: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  try {
    const units = await startReading(spawn, listUnits, signal);
    const onLine = (line: string) => {
      for (const service of services) if (line.includes(`${service}.service`)) found.add(service);
    };
    await readLines(units, onLine, signal);
  } catch (error) {
    if (hasCode(error, "unavailable")) throw error;
    log.debug({ why: messageOf(error) }, "cannot list the units of the target's journal");
  }
  return found;
}

/** Starts a command that gets no input. Over SSH its output ends only after its input has. */
async function startReading(spawn: LogQueryDeps["spawn"], argv: Argv, signal: AbortSignal): Promise<HostProcess> {
  const started = await spawn(argv, signal);
  started.stdin.on("error", () => undefined);
  started.stdin.end();
  return started;
}

/** Copies what journalctl prints, errors included. */
async function copyJournal(
  { spawn }: LogQueryDeps,
  { services, options }: LogQuery,
  out: Writable,
  signal: AbortSignal,
): Promise<void> {
  await using journal = await startReading(spawn, journalCommand(services, options), signal);
  const copied = [journal.stdout, journal.stderr].map((stream) => {
    stream.pipe(out, { end: false });
    return finished(stream, { signal });
  });
  try {
    await Promise.all(copied);
  } catch (error) {
    // As with the kubelet, what was printed within the time is the response.
    if (!signal.aborted) throw error;
  }
}

/** Copies the first of /var/log/NAME, NAME.log and NAME/NAME.log that is a file. */
async function copyFile(deps: LogQueryDeps, service: string, out: Writable, signal: AbortSignal): Promise<void> {
  for (const name of [service, `${service}.log`, `${service}/${service}.log`]) {
    try {
      if (await copyIfFile(deps, name, out, signal)) return;
    } catch (error) {
      if (hasCode(error, "not_found")) continue;
      out.write(`\nerror getting log for ${service}: ${messageOf(error)}\n`);
      return;
    }
  }
  out.write(`\nlog not found for ${service}\n`);
}

/** @returns false for a directory. @throws not_found */
async function copyIfFile(deps: LogQueryDeps, name: string, out: Writable, signal: AbortSignal): Promise<boolean> {
  const { files } = deps;
  const path = await files.realpath(posix.join(root, name), signal);
  if (!(await isLog(deps, path, signal))) throw new Error(`openat ${name}: ${leadsOut}`);
  if ((await files.lstat(path, signal)).kind === "directory") return false;
  await using file = await files.open(path, { noFollow: true, signal });
  const { size } = await file.stat(signal);
  const blocks = Readable.from(readBlocks(file, 0, size, signal));
  blocks.pipe(out, { end: false });
  await finished(blocks, { signal });
  return true;
}
