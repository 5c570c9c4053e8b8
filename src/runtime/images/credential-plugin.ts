import { type ExecFileException, execFile } from "node:child_process";
import type { CredentialProvider } from "../../config/credential-providers.ts";
import type { Clock } from "../../lib/clock.ts";
import { parseDuration } from "../../lib/go-duration.ts";
import { entriesOf, recordIn, recordOf } from "../../lib/record.ts";
import type { Logins } from "./docker-config.ts";

/** Credential provider plugins. */
export interface PluginMeasures {
  /** A credential provider plugin was run. */
  pluginRan(plugin: string, ms: number, failed: boolean): void;
}

/** A credential provider plugin as a program to run. */
export type PluginProgram = Pick<CredentialProvider, "name" | "path" | "args" | "env" | "apiVersion">;

export interface PluginRequest {
  /** Fully qualified repository of the image. */
  readonly image: string;
  /** Service account token of the request; undefined for the node's own credentials. */
  readonly serviceAccountToken?: string;
  readonly serviceAccountAnnotations?: Readonly<Record<string, string>>;
}

export type PluginResponse = ReturnType<typeof parseResponse>;

/** Runs a plugin. @throws Error in the kubelet's words, without any content of the response. */
export type RunPlugin = (program: PluginProgram, request: PluginRequest) => Promise<PluginResponse>;

const timeoutMs = 60_000;
const maxOutputBytes = 2 ** 20;
const maxStderrLength = 1_000;

export interface PluginRunnerDeps {
  readonly measures: PluginMeasures;
  readonly clock: Clock;
  /** Kills running plugins. */
  readonly stop: AbortSignal;
}

/** Runs plugins, with the request on standard input and the response on standard output.
 *  @see https://kubernetes.io/docs/reference/config-api/kubelet-credentialprovider.v1/ */
export function createPluginRunner({ measures, clock, stop }: PluginRunnerDeps): RunPlugin {
  return async (program, request) => {
    const { apiVersion } = program;
    const message = JSON.stringify({ kind: "CredentialProviderRequest", apiVersion, ...request });
    const startedAt = clock.monotonic();
    const output = runProgram(program, request.image, message, stop);
    const [outcome] = await Promise.allSettled([output]);
    measures.pluginRan(program.name, clock.monotonic() - startedAt, outcome.status === "rejected");
    return parseResponse(await output, apiVersion);
  };
}

function runProgram(
  { name, path, args, env }: PluginProgram,
  image: string,
  input: string,
  signal: AbortSignal,
): Promise<string> {
  const own = Object.fromEntries(env.map((variable) => [variable.name, variable.value]));
  const bounds = { timeout: timeoutMs, maxBuffer: maxOutputBytes, killSignal: "SIGKILL" } as const;
  return new Promise((resolve, reject) => {
    const options = { ...bounds, signal, env: { ...process.env, ...own } };
    const child = execFile(path, args, options, (error, stdout, stderr) => {
      if (!error) return resolve(stdout);
      const output = stderr.trim().slice(0, maxStderrLength);
      const what = `error execing credential provider plugin ${name} for image ${image}: ${failureText(error)}`;
      reject(new Error(output === "" ? what : `${what}: ${output}`));
    });
    // A plugin that exits without reading its input fails by its exit code.
    child.stdin?.on("error", () => undefined).end(input);
  });
}

/** The error's own message contains the arguments, which may be secret. */
function failureText({ code, killed, signal }: ExecFileException): string {
  if (code === "ERR_CHILD_PROCESS_STDIO_MAXBUFFER") return `more than ${maxOutputBytes} bytes of output`;
  if (killed) return "context deadline exceeded";
  if (typeof code === "number") return `exit status ${code}`;
  return signal ? `signal: ${signal}` : (code ?? "could not be started");
}

const responseFields = ["kind", "apiVersion", "cacheKeyType", "cacheDuration", "auth"];
const cacheKeyTypes = ["Image", "Registry", "Global"] as const;

function parseResponse(text: string, expected: string) {
  const response = recordIn(text) ?? {};
  const { apiVersion } = response;
  if (typeof apiVersion === "string" && apiVersion !== expected)
    throw new Error(
      `apiVersion from credential plugin response did not match expected apiVersion:${expected}, actual apiVersion:${apiVersion}`,
    );
  /** Cache duration in milliseconds; undefined for the configured default. */
  const cacheMs = parseCacheDuration(response["cacheDuration"]);
  const logins = parseAuth(response["auth"]);
  const { kind, cacheKeyType = "" } = response;
  const isResponse = kind === "CredentialProviderResponse" && apiVersion === expected;
  const isMalformed =
    typeof cacheKeyType !== "string" || Object.keys(response).some((name) => !responseFields.includes(name));
  if (!isResponse || isMalformed || cacheMs === "none" || !logins)
    throw new Error("error decoding credential provider plugin response from stdout");
  const known = cacheKeyTypes.find((type) => type === cacheKeyType);
  if (!known) throw new Error(`credential provider plugin did not return a valid cacheKeyType: ${cacheKeyType}`);
  return {
    /** Images that the response is valid for. */
    cacheKeyType: known,
    cacheMs,
    logins,
  };
}

/** Milliseconds; undefined if not set, `none` if it is not a duration. */
function parseCacheDuration(given: unknown): number | undefined | "none" {
  if (given === undefined || given === null) return undefined;
  return (typeof given === "string" ? parseDuration(given) : undefined) ?? "none";
}

/** Parses an `auth` map; undefined if it is invalid. */
function parseAuth(given: unknown): Logins | undefined {
  if (given === undefined || given === null) return [];
  if (!recordOf(given)) return undefined;
  const logins = entriesOf(given).map(([location, entry]) => [location, parseLogin(entry)] as const);
  const whole = logins.flatMap(([location, login]) => (login ? [[location, login] as const] : []));
  return whole.length === logins.length ? whole : undefined;
}

function parseLogin(entry: unknown): Logins[number][1] | undefined {
  const { username = "", password = "", ...more } = recordOf(entry) ?? { more: entry };
  if (typeof username !== "string" || typeof password !== "string" || Object.keys(more).length > 0) return undefined;
  return { username, password, email: "" };
}
