import type { RegisteringPlugin } from "../drivers.ts";
import { InfoRequest, RegistrationService } from "../gen/plugin-registration.ts";
import { type GrpcDeps, callSocket } from "../host/grpc-session.ts";
import { throwIfAborted, unlessGone } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { findSockets } from "./sockets.ts";

const limitMs = 5_000;
const userAgent = "graftlet-plugin-manager";

/** Plugins of a type that answer on their registration sockets, without registering them. A socket that nobody answers on is none.
 *  @throws the host's failures. */
export async function standingPlugins(
  deps: GrpcDeps & { readonly host: Pick<Host, "fs"> },
  directory: string,
  type: string,
  signal: AbortSignal,
): Promise<readonly RegisteringPlugin[]> {
  const found = await unlessGone(findSockets(deps.host.fs, directory, signal));
  const asked = [...(found?.sockets.keys() ?? [])].map(async (path) => {
    const call = { path, method: RegistrationService.getInfo, request: InfoRequest.create(), userAgent, limitMs };
    const info = await callSocket(deps, call, signal).catch(() => throwIfAborted(signal));
    if (info?.type !== type) return [];
    return [{ name: info.name, endpoint: info.endpoint || path, versions: info.supportedVersions }];
  });
  return (await Promise.all(asked)).flat();
}
