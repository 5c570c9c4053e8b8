import { InfoRequest, RegistrationService } from "../gen/plugin-registration.ts";
import { type GrpcDeps, unaryCallToSocket } from "../host/grpc-session.ts";
import { smallLimits } from "../lib/bounded-decode.ts";
import { throwIfAborted, ignoreNotFound } from "../lib/errors.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { Host } from "../seams/host.ts";
import type { RegisteringPlugin } from "./ports.ts";
import { findSockets } from "./sockets.ts";

const callTimeoutMs = 5_000;
const userAgent = "graftlet-plugin-manager";
const maxConcurrentCalls = 16;

/** Plugins of a type that answer on their registration sockets, without registering them. Sockets that do not answer are
 *  skipped.
 *  @throws the host's failures. */
export async function connectedPlugins(
  deps: GrpcDeps & { readonly host: Pick<Host, "fs"> },
  directory: string,
  type: string,
  signal: AbortSignal,
): Promise<readonly RegisteringPlugin[]> {
  const found = await ignoreNotFound(findSockets(deps.host.fs, directory, signal));
  const turns = createSemaphore(maxConcurrentCalls);
  const ask = async (path: string) => {
    const call = {
      path,
      method: RegistrationService.getInfo,
      request: InfoRequest.create(),
      userAgent,
      limitMs: callTimeoutMs,
    };
    const info = await unaryCallToSocket(deps, { ...call, limits: smallLimits }, signal).catch(() =>
      throwIfAborted(signal),
    );
    if (info?.type !== type) return [];
    return [{ name: info.name, endpoint: info.endpoint || path, versions: info.supportedVersions }];
  };
  const answers = [...(found?.sockets.keys() ?? [])].map((path) => turns(() => ask(path)));
  return (await Promise.all(answers)).flat();
}
