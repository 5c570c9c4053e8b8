import { isUtf8 } from "node:buffer";
import { posix } from "node:path";
import type { ContainerCreateOptions, ContainerInspectInfo } from "dockerode";
import {
  ContainerConfig,
  type CreateContainerRequest,
  type ImageSpec,
  LinuxContainerSecurityContext,
  NamespaceMode,
  PodSandboxConfig,
  type DNSConfig,
} from "../../../src/gen/cri.ts";
import { CodedError, hasCode, ignoreNotFound } from "../../../src/lib/errors.ts";
import { createNamed } from "./create-named.ts";
import { containerHostConfig } from "./host-config.ts";
import { imageRefOf } from "../image/reference.ts";
import { inspectImage } from "../image/inspect.ts";
import { dockerLabels } from "./labels.ts";
import { linkEngineLog } from "./log-link.ts";
import { cacheSandbox } from "../container-facts.ts";
import {
  containerName,
  containerType,
  imageLabel,
  logPathLabel,
  sandboxIdLabel,
  sandboxType,
  typeLabel,
} from "./names.ts";
import { inspectOwn } from "./own.ts";
import type { DockerParts } from "../parts.ts";
import { forceRemove } from "./remove.ts";
import { containerUser } from "./security-options.ts";
import { signalName } from "../../../src/pod/stop-signal.ts";

/** Creates a container in a sandbox of this node and, at the same time, writes the sandbox's resolv.conf, which
 *  containers get on start.
 *  @returns the container's ID.
 *  @throws CodedError not_found (sandbox, image, PID target), failed_precondition (the sandbox has ended, a profile
 *  cannot be read), already_exists, invalid_argument, unimplemented for features that the Engine API lacks. */
export async function createContainer(
  parts: DockerParts,
  request: CreateContainerRequest,
  signal: AbortSignal,
): Promise<string> {
  const config = ContainerConfig.fromPartial(request.config ?? {});
  const sandboxConfig = PodSandboxConfig.fromPartial(request.sandboxConfig ?? {});
  if (!config.metadata || !sandboxConfig.metadata)
    throw new CodedError("invalid_argument", "container and sandbox need metadata");
  const { facts, containerLogs, host } = parts;
  const cached = facts.sandboxes.get(request.podSandboxId);
  const sandbox = cached ?? (await runningSandbox(parts, request.podSandboxId, signal));
  await checkTarget(parts, config, signal);
  const { logPath } = config;
  const log = logPath && sandboxConfig.logDirectory && posix.join(sandboxConfig.logDirectory, logPath);
  const body = {
    ...containerSettings(config),
    Labels: dockerLabels(config, parts.nodeName, ownLabels(config, sandbox.Id, log)),
    HostConfig: await containerHostConfig({ config, sandbox, containerLogs, fs: host.fs }, signal),
  };
  const unread = facts.emptySandboxes.get(sandbox.Id) === true;
  const imageRef = prefetchImageRef(parts, config.image, signal);
  const id = await createWithPreconditions(
    parts,
    createWithSources(parts, containerName(config.metadata, sandboxConfig.metadata), body, signal),
    [
      ensureResolvConf(parts, { ...sandbox, unread }, sandboxConfig.dnsConfig, signal),
      cached && runningSandbox(parts, sandbox.Id, signal),
    ],
  );
  facts.emptySandboxes.delete(sandbox.Id);
  facts.createdContainers.set(id, {
    linked: log ? linkEngineLog(parts, sandbox, { id, logPath: log }, signal) : Promise.resolve(),
  });
  const reference = await imageRef;
  if (reference !== undefined) facts.containers.set(id, { imageRef: reference });
  return id;
}

/** Time limit for removing a container after a failed creation, milliseconds. */
const removeTimeoutMs = 30_000;

/** Awaits the creation and its preconditions. If one fails, the container is removed, since the caller does not learn its ID.
 *  @throws the first failed precondition, before the creation's own error. */
async function createWithPreconditions(
  parts: DockerParts,
  creating: Promise<string>,
  conditions: readonly unknown[],
): Promise<string> {
  const [created, ...preconditions] = await Promise.allSettled([creating, ...conditions]);
  const failed = [...preconditions, created].find((outcome) => outcome.status === "rejected");
  if (created.status === "fulfilled") {
    if (!failed) return created.value;
    await forceRemove(parts, created.value, parts.clock.within(removeTimeoutMs));
  }
  throw failed?.reason;
}

/** The image reference for the container's status; undefined if it has to be looked up for the status. */
async function prefetchImageRef(
  parts: DockerParts,
  image: ImageSpec | undefined,
  signal: AbortSignal,
): Promise<string | undefined> {
  const found = await inspectImage(parts, image?.image ?? "", signal).catch(() => undefined);
  return found && imageRefOf(found, image?.userSpecifiedImage || image?.image);
}

async function runningSandbox(parts: DockerParts, id: string, signal: AbortSignal): Promise<ContainerInspectInfo> {
  const sandbox = await inspectOwn(parts, id, sandboxType, signal);
  cacheSandbox(parts.facts, sandbox);
  if (sandbox.State.Running) return sandbox;
  throw new CodedError("failed_precondition", `sandbox ${id} is not running`);
}

/** Checks that the container of a targeted PID namespace belongs to this node. */
async function checkTarget(parts: DockerParts, { linux }: ContainerConfig, signal: AbortSignal): Promise<void> {
  const { pid, targetId = "" } = linux?.securityContext?.namespaceOptions ?? {};
  if (pid === NamespaceMode.TARGET) await inspectOwn(parts, targetId, containerType, signal);
}

/** Process settings of a CRI container; the image's entrypoint, arguments, directory and user if the request has none. The image's health
 *  check is disabled: the kubelet runs the pod's probes. */
function containerSettings(config: ContainerConfig): ContainerCreateOptions {
  const { command, args, workingDir } = config;
  const stopSignal = signalName(config.stopSignal);
  const user = containerUser(LinuxContainerSecurityContext.fromPartial(config.linux?.securityContext ?? {}));
  return {
    Image: config.image?.image ?? "",
    ...(command.length > 0 && { Entrypoint: command }),
    ...(args.length > 0 && { Cmd: args }),
    Env: config.envs.map(envVariable),
    ...(workingDir !== "" && { WorkingDir: workingDir }),
    ...(user !== "" && { User: user }),
    OpenStdin: config.stdin,
    StdinOnce: config.stdinOnce,
    Tty: config.tty,
    Healthcheck: { Test: ["NONE"] },
    ...(stopSignal !== undefined && { StopSignal: stopSignal }),
  };
}

/** Formats an environment variable. @throws CodedError invalid_argument for a value that is not UTF-8, which JSON cannot
 *  represent. */
function envVariable({ key, value }: { readonly key: string; readonly value: Uint8Array }): string {
  if (isUtf8(value)) return `${key}=${Buffer.from(value).toString()}`;
  throw new CodedError(
    "invalid_argument",
    `the value of environment variable ${key} is not UTF-8, which Docker requires`,
  );
}

function ownLabels({ image }: ContainerConfig, sandboxId: string, log: string): Record<string, string> {
  const requestedImage = image?.userSpecifiedImage || image?.image;
  return {
    [typeLabel]: containerType,
    [sandboxIdLabel]: sandboxId,
    ...(log && { [logPathLabel]: log }),
    ...(requestedImage && { [imageLabel]: requestedImage }),
  };
}

/** Creates a container and the missing sources of its mounts, as CRI runtimes do; daemons before API 1.42 refuse missing
 *  sources. */
async function createWithSources(
  parts: DockerParts,
  name: string,
  body: ContainerCreateOptions,
  signal: AbortSignal,
): Promise<string> {
  try {
    return await createNamed(parts, name, body, signal);
  } catch (error) {
    if (!hasCode(error, "invalid_argument")) throw error;
    const missing = await missingSources(parts, body, signal);
    if (missing.length === 0) throw error;
    await parts.host.fs.apply(
      missing.map((path) => ({ kind: "mkdir", path, mode: 0o755, parents: true })),
      signal,
    );
    return createNamed(parts, name, body, signal);
  }
}

async function missingSources({ host }: DockerParts, body: ContainerCreateOptions, signal: AbortSignal) {
  const sources = (body.HostConfig?.Mounts ?? []).map(({ Source }) => Source);
  const found = await Promise.all(sources.map((path) => ignoreNotFound(host.fs.stat(path, signal))));
  return sources.filter((_, index) => !found[index]);
}

/** Sets the pod's resolver. Docker points containers on a user-defined network at its own resolver, in a resolv.conf shared by all
 *  containers in the sandbox's network namespace; that file is overwritten in place unless it is correct already. Without write access
 *  Docker's resolver stays, which forwards to the sandbox's servers.
 *  @param dns as given to RunPodSandbox; nothing changes without it.
 *  @param sandbox `unread` if no container reads the file yet. */
export async function ensureResolvConf(
  { host, log }: Pick<DockerParts, "host" | "log">,
  sandbox: Pick<ContainerInspectInfo, "Id" | "ResolvConfPath"> & { readonly unread?: boolean },
  dns: DNSConfig | undefined,
  signal: AbortSignal,
): Promise<void> {
  const path = sandbox.ResolvConfPath;
  if (!dns || !path) return;
  const wanted = resolvConf(dns);
  try {
    if (sandbox.unread || (await host.fs.readFile(path, { signal })).toString() !== wanted)
      await host.fs.apply([{ kind: "write", path, data: wanted, mode: 0o644 }], signal);
  } catch (error) {
    if (!hasCode(error, "permission_denied")) throw error;
    log.warn({ err: error, sandbox: sandbox.Id, path }, "cannot write resolv.conf; using Docker's resolver");
  }
}

/** @see https://man7.org/linux/man-pages/man5/resolv.conf.5.html */
function resolvConf({ servers, searches, options }: DNSConfig): string {
  return [
    ...(searches.length > 0 ? [`search ${searches.join(" ")}`] : []),
    ...servers.map((server) => `nameserver ${server}`),
    ...(options.length > 0 ? [`options ${options.join(" ")}`] : []),
  ]
    .map((line) => `${line}\n`)
    .join("");
}
