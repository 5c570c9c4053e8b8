import { CodedError, hasCode, messageOf, throwIfAborted } from "../../../src/lib/errors.ts";
import { askForStream } from "../client/answer-stream.ts";
import { engineInfo } from "../client/engine-info.ts";
import { inspectImage } from "../image/inspect.ts";
import { jsonLines } from "../client/json-lines.ts";
import { localPauseImage } from "../config.ts";
import type { DockerParts } from "../parts.ts";
import { type Machine, pauseProgram } from "./program.ts";
import { pull } from "../image/pull.ts";
import { createSharedWork } from "../../../src/lib/shared-work.ts";
import { tarOfProgram } from "./tar.ts";

/** How long the configured image may take, and how long all of it, milliseconds. */
const pullMs = 60_000;
const obtainMs = 90_000;

const machines: Readonly<Record<string, Machine>> = { x86_64: "amd64", aarch64: "arm64" };

/** The image of sandboxes. */
export interface SandboxImage {
  /** Makes sure that it is there: the configured one, pulled where it is missing; else, where it cannot be pulled, one made here,
   *  without compiler or registry, under a name of its own. The configured one is looked for once.
   *  @returns the name to create containers by.
   *  @throws CodedError failed_precondition, a sentence that says what to load, where neither can be had. */
  ensure(signal: AbortSignal): Promise<string>;
  /** Looks whether the configured one has gone since it was found, for when the daemon says that something is not there.
   *  @returns false when it has. */
  verify(signal: AbortSignal): Promise<boolean>;
}

export function createSandboxImage(parts: DockerParts): SandboxImage {
  const { clock, log } = parts;
  const { sandboxImage } = parts.config;
  const shared = createSharedWork<string>(clock, obtainMs);
  /** Why the configured image could not be pulled, once the other stands: nobody waits for it again. */
  let failure: string | undefined;
  let present = false;
  const obtain = async (signal: AbortSignal): Promise<string> => {
    const why = failure ?? (await pullFailure(parts, signal));
    if (why === undefined) return sandboxImage;
    if (!(await inspectImage(parts, localPauseImage, signal))) await makePauseImage(parts, why, signal);
    if (failure === undefined)
      log.warn({ image: sandboxImage, why, instead: localPauseImage }, "the sandbox image cannot be pulled");
    failure = why;
    return localPauseImage;
  };
  const look = async (signal: AbortSignal) =>
    (present = (await inspectImage(parts, sandboxImage, signal)) !== undefined);
  return {
    ensure: async (signal) => (present || (await look(signal)) ? sandboxImage : shared(obtain, signal)),
    verify: async (signal) => !present || look(signal),
  };
}

/** Why the configured image cannot be pulled; undefined when it has been. */
async function pullFailure(parts: DockerParts, signal: AbortSignal): Promise<string | undefined> {
  try {
    await pull(parts, { image: parts.config.sandboxImage }, parts.clock.within(pullMs, signal));
    return undefined;
  } catch (error) {
    throwIfAborted(signal);
    if (hasCode(error, "unavailable")) throw error;
    return messageOf(error);
  }
}

/** @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Image/operation/ImageCreate (fromSrc) */
async function makePauseImage(parts: DockerParts, why: string, signal: AbortSignal): Promise<void> {
  const { docker, config } = parts;
  const { Architecture } = await engineInfo(parts, signal);
  const machine = machines[Architecture];
  if (!machine)
    throw new CodedError(
      "failed_precondition",
      `the sandbox image ${config.sandboxImage} cannot be pulled (${why}), and graftlet makes none for ${Architecture}: load it with \`docker load\`, or name another in providerConfig.sandboxImage.`,
    );
  await docker.call(async (engine, abortSignal) => {
    const answer = await askForStream(engine, {
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
    for await (const line of jsonLines(answer)) refuseError(line);
  }, signal);
}

function refuseError(line: unknown): void {
  if (typeof line === "object" && line !== null && "error" in line) throw new CodedError("unknown", String(line.error));
}
