import { CodedError, hasCode, messageOf, throwIfAborted } from "../../../src/lib/errors.ts";
import { requestStream } from "../client/response-stream.ts";
import { engineInfo } from "../client/engine-info.ts";
import { inspectImage } from "../image/inspect.ts";
import { jsonLines } from "../client/json-lines.ts";
import { localPauseImage } from "../config.ts";
import type { DockerParts } from "../parts.ts";
import { type Architecture, pauseProgram } from "./program.ts";
import { pull } from "../image/pull.ts";
import { createSharedPromise } from "../../../src/lib/single-flight.ts";

/** Timeout of pulling the configured image, and of the whole operation, milliseconds. */
const pullTimeoutMs = 60_000;
const obtainTimeoutMs = 90_000;

const architectures: Readonly<Record<string, Architecture>> = { x86_64: "amd64", aarch64: "arm64" };

export type SandboxImage = ReturnType<typeof createSandboxImage>;

export function createSandboxImage(parts: DockerParts) {
  const { clock, log } = parts;
  const { sandboxImage } = parts.config;
  const shared = createSharedPromise<string>(clock, obtainTimeoutMs);
  /** Reason why the configured image could not be pulled. Set once the local image exists; the pull is then not repeated. */
  let failure: string | undefined;
  let present = false;
  const obtain = async (signal: AbortSignal): Promise<string> => {
    const why = failure ?? (await pullFailure(parts, signal));
    if (why === undefined) return sandboxImage;
    if (!(await inspectImage(parts, localPauseImage, signal))) await buildPauseImage(parts, why, signal);
    if (failure === undefined)
      log.warn(
        { image: sandboxImage, why, instead: localPauseImage },
        "cannot pull the sandbox image; using the built-in one",
      );
    failure = why;
    return localPauseImage;
  };
  const checkPresent = async (signal: AbortSignal) =>
    (present = (await inspectImage(parts, sandboxImage, signal)) !== undefined);
  return {
    /** Ensures that a sandbox image is present: the configured one, which is pulled if it is missing, or else a local image,
     *  which is built without compiler or registry. The configured image is looked up once.
     *  @returns the image name for new containers.
     *  @throws CodedError failed_precondition, a sentence with the image to load, if neither is available. */
    ensure: async (signal: AbortSignal): Promise<string> =>
      present || (await checkPresent(signal)) ? sandboxImage : shared(obtain, signal),
    /** Checks that the configured image is still present, after the daemon reported that something is missing.
     *  @returns false if it is gone. */
    verify: async (signal: AbortSignal): Promise<boolean> => !present || checkPresent(signal),
  };
}

/** Reason why the configured image cannot be pulled; undefined after a successful pull. */
async function pullFailure(parts: DockerParts, signal: AbortSignal): Promise<string | undefined> {
  try {
    await pull(parts, { image: parts.config.sandboxImage }, parts.clock.within(pullTimeoutMs, signal));
    return undefined;
  } catch (error) {
    throwIfAborted(signal);
    if (hasCode(error, "unavailable")) throw error;
    return messageOf(error);
  }
}

/** @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Image/operation/ImageCreate (fromSrc) */
async function buildPauseImage(parts: DockerParts, why: string, signal: AbortSignal): Promise<void> {
  const { docker, config, host } = parts;
  const { Architecture } = await engineInfo(parts, signal);
  const machine = architectures[Architecture];
  if (!machine)
    throw new CodedError(
      "failed_precondition",
      `the sandbox image ${config.sandboxImage} cannot be pulled (${why}), and graftlet cannot build one for ${Architecture}: load it with \`docker load\`, or set providerConfig.sandboxImage to another.`,
    );
  await docker.call(async (engine, abortSignal) => {
    const response = await requestStream(engine, {
      method: "POST",
      path: "/images/create",
      query: {
        fromSrc: "-",
        repo: localPauseImage,
        message: "made by graftlet",
        changes: ['ENTRYPOINT ["/pause"]', "USER 65535:65535"],
      },
      body: tarOfProgram("pause", pauseProgram(machine)),
      signal: abortSignal,
    });
    for await (const line of jsonLines(response, host)) throwIfError(line);
  }, signal);
}

function throwIfError(line: unknown): void {
  if (typeof line === "object" && line !== null && "error" in line) throw new CodedError("unknown", String(line.error));
}

const blockBytes = 512;

/** Creates a reproducible tar archive (ustar) of one executable file, owned by root, dated to the epoch.
 *  @see https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html#tag_20_94_13_06 */
export function tarOfProgram(name: string, data: Uint8Array): Buffer {
  const padding = Buffer.alloc((blockBytes - (data.length % blockBytes)) % blockBytes);
  const end = Buffer.alloc(2 * blockBytes);
  return Buffer.concat([header(name, data.length), data, padding, end]);
}

function header(name: string, size: number): Buffer {
  const block = Buffer.alloc(blockBytes);
  block.write(name, 0, 100);
  block.write(octal(0o755, 8), 100);
  block.write(octal(0, 8), 108); // uid
  block.write(octal(0, 8), 116); // gid
  block.write(octal(size, 12), 124);
  block.write(octal(0, 12), 136); // modified at
  block.fill(" ", 148, 156); // the checksum counts its own field as spaces
  block.write("0", 156); // a regular file
  block.write("ustar\u000000", 257);
  const checksum = block.reduce((sum, byte) => sum + byte, 0);
  block.write(`${checksum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

/** A number in tar's format: octal digits and a NUL. */
function octal(value: number, bytes: number): string {
  return `${value.toString(8).padStart(bytes - 1, "0")}\0`;
}
