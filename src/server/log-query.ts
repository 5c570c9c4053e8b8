import { aggregateText } from "../lib/aggregate.ts";
import { goQuote } from "../lib/go-quote.ts";
import { type Argv, command } from "../seams/command.ts";

/** A query for the logs of services, or for one file of /var/log. */
export interface LogQuery {
  /** Names of systemd units without `.service`, or of files in /var/log. */
  readonly services: readonly string[];
  /** Paths below /var/log. */
  readonly files: readonly string[];
  readonly options: LogQueryOptions;
}

export interface LogQueryOptions {
  /** Milliseconds since the epoch, with the text that they were given as. */
  readonly since?: Time;
  readonly until?: Time;
  /** Number of lines from the end. */
  readonly tailLines?: number;
  /** 0 for the current boot, -1 for the one before, and so on. */
  readonly boot?: number;
  /** A regular expression of journalctl (PCRE2). */
  readonly pattern?: string;
}

interface Time {
  readonly ms: number;
  readonly text: string;
}

const maxTailLines = 100_000;
const maxServiceLength = 256;
const maxServices = 4;

export type ParsedLogQuery =
  /** Error for a request without any option of a log query. */
  | { readonly kind: "none" }
  | { readonly kind: "query"; readonly query: LogQuery }
  | { readonly kind: "malformed"; readonly text: string };

/** Parses the options of a node log query, with the kubelet's texts for malformed ones.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#log-query */
export function parseLogQuery(params: URLSearchParams): ParsedLogQuery {
  const errors: string[] = [];
  const named = params.getAll("query");
  const isPath = (name: string) => /[/\\]/.test(name);
  const files = named.filter(isPath);
  const services = named.filter((name) => !isPath(name) && name.trim() !== "");
  if (named.length > 0 && files.length + services.length === 0)
    errors.push(invalid("query", JSON.stringify(named), "may not be empty"));
  const given = <T>(name: string, read: (text: string) => T | string): T | undefined => {
    const text = params.get(name) ?? "";
    if (text === "") return undefined;
    const value = read(text);
    if (typeof value !== "string") return value;
    errors.push(invalid(name, goQuote(text), value));
    return undefined;
  };
  const since = given("sinceTime", readTime);
  const until = given("untilTime", readTime);
  const boot = given("boot", readInteger);
  const tailLines = given("tailLines", readInteger);
  const pattern = params.get("pattern") ?? "";
  if (errors.length > 0) return { kind: "malformed", text: aggregateText(errors) };
  const options = {
    ...(since && { since }),
    ...(until && { until }),
    ...(boot !== undefined && { boot }),
    ...(tailLines !== undefined && { tailLines }),
    ...(pattern !== "" && { pattern }),
  };
  if (named.length === 0 && isEmpty(options)) return { kind: "none" };
  return { kind: "query", query: { services, files, options } };
}

/** True if a query has no options. */
export function isPlain({ options }: Pick<LogQuery, "options">): boolean {
  return isEmpty(options);
}

function isEmpty(options: LogQueryOptions): boolean {
  return Object.keys(options).length === 0;
}

/** Why a query is not allowed, in the kubelet's words; undefined if it is.
 *  @param unreadable why the query's only file cannot be read. */
export async function logQueryError(
  query: LogQuery,
  unreadable: (file: string) => Promise<string | undefined>,
): Promise<string | undefined> {
  const { services } = query;
  const errors = services.flatMap((name) => {
    const wrong = serviceError(name);
    return wrong === undefined ? [] : [invalid("query", goQuote(name), wrong)];
  });
  if (services.length > maxServices)
    errors.push(`query: Too many: ${services.length}: must have at most ${maxServices} items`);
  const fileError = await fileQueryError(query, unreadable);
  if (fileError !== undefined) errors.push(fileError);
  errors.push(...optionErrors(query.options));
  return errors.length === 0 ? undefined : aggregateText(errors);
}

async function fileQueryError(
  query: LogQuery,
  unreadable: (file: string) => Promise<string | undefined>,
): Promise<string | undefined> {
  const { services, files } = query;
  const [file] = files;
  if (files.length + services.length === 0) return "query: Required value: cannot be empty with options";
  if (file === undefined) return undefined;
  const list = JSON.stringify(files);
  if (services.length > 0) {
    const both = goQuote(`[${files.join(" ")}], [${services.join(" ")}]`);
    return invalid("query", both, "cannot specify a file and service");
  }
  if (files.length > 1) return invalid("query", list, "cannot specify more than one file");
  if (!isPlain(query)) return invalid("query", list, "cannot specify file with options");
  const why = await unreadable(file);
  return why === undefined ? undefined : invalid("query", list, why);
}

function optionErrors({ since, until, boot, tailLines, pattern }: LogQueryOptions): string[] {
  const errors: string[] = [];
  if (since && until && since.ms > until.ms)
    errors.push(invalid("untilTime", JSON.stringify(until.text), "must be after `sinceTime`"));
  if (boot !== undefined && boot > 0) errors.push(invalid("boot", String(boot), "must be less than 1"));
  if (tailLines !== undefined && (tailLines < 0 || tailLines > maxTailLines))
    errors.push(invalid("tailLines", String(tailLines), `must be between 0 and ${maxTailLines}, inclusive`));
  // A command's arguments end at a NUL.
  if (pattern?.includes("\0")) errors.push(invalid("pattern", goQuote(pattern), "may not contain NUL"));
  return errors;
}

function serviceError(name: string): string | undefined {
  if (Buffer.byteLength(name) > maxServiceLength) return `length must be less than ${maxServiceLength}`;
  return /^[a-zA-Z\-_.:0-9@]+$/.test(name) ? undefined : "input contains unsupported characters";
}

/** The command that prints the journal of services. Each value is attached to its option by `=`, so none can become an option. */
export function journalCommand(services: readonly string[], options: LogQueryOptions): Argv {
  const { since, until, tailLines, boot, pattern } = options;
  return command("journalctl", [
    "--utc",
    "--no-pager",
    "--output=short-precise",
    ...(since ? [`--since=${journalTime(since)}` as const] : []),
    ...(until ? [`--until=${journalTime(until)}` as const] : []),
    ...(tailLines === undefined ? [] : (["--pager-end", `--lines=${tailLines}`] as const)),
    ...services.map((service) => `--unit=${service}` as const),
    ...(pattern === undefined ? [] : [`--grep=${pattern}` as const]),
    ...(boot === undefined ? [] : [`--boot=${boot}` as const]),
  ]);
}

/** Formats a time in UTC, independent of the time zones of the machine and of the request. */
function journalTime({ ms }: Time): string {
  return `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** RFC 3339, as Go parses it. */
function readTime(text: string): Time | string {
  const isValid = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)$/.test(text);
  const ms = isValid ? Date.parse(text.replace(",", ".")) : Number.NaN;
  return Number.isNaN(ms) ? "invalid time format" : { ms, text };
}

/** An integer, with the errors of Go's strconv.Atoi. */
function readInteger(text: string): number | string {
  if (!/^[+-]?\d+$/.test(text)) return `strconv.Atoi: parsing ${goQuote(text)}: invalid syntax`;
  const value = BigInt(text.replace("+", ""));
  if (value >= 2n ** 63n || value < -(2n ** 63n)) return `strconv.Atoi: parsing ${goQuote(text)}: value out of range`;
  return Number(value);
}

function invalid(field: string, value: string, detail: string): string {
  return `${field}: Invalid value: ${value}: ${detail}`;
}
