import type { ClientHttp2Session } from "node:http2";
import type { PluginHandler, RegisteringPlugin } from "./ports.ts";
import { InfoRequest, RegistrationService, RegistrationStatus } from "../gen/plugin-registration.ts";
import { type GrpcDeps, openGrpcWithRetry } from "../host/grpc-session.ts";
import { smallLimits } from "../lib/bounded-decode.ts";
import { CodedError, codeOf, messageOf, throwIfAborted } from "../lib/errors.ts";
import { unaryCall } from "../lib/grpc.ts";

export interface RegisteredPlugin {
  readonly plugin: RegisteringPlugin;
  readonly handler: PluginHandler;
}

/** Handlers by plugin type; plugins of a type without one are rejected. */
export type PluginHandlers = Readonly<Record<string, PluginHandler | undefined>>;

const userAgent = "graftlet-plugin-manager";
/** Timeouts, milliseconds: the kubelet's. */
const dialTimeoutMs = 10_000;
const infoTimeoutMs = 1_000;
const notifyTimeoutMs = 5_000;

/** Asks the plugin behind a socket for its info, has the handler of its type register it, and notifies the plugin of the
 *  outcome.
 *  @param onAccepted called with the plugin just before its handler registers it, so that its removal meanwhile is not missed.
 *  @throws CodedError in the kubelet's words; the plugin is not registered then. */
export async function registerPlugin(
  deps: GrpcDeps & { readonly handlers: PluginHandlers },
  socket: string,
  onAccepted: (registered: RegisteredPlugin) => void,
  signal: AbortSignal,
): Promise<void> {
  const session = await dial(deps, socket, signal);
  try {
    await registerOverSession(session, deps, { socket, onAccepted }, signal);
  } finally {
    session.destroy();
  }
}

async function dial(deps: GrpcDeps, socket: string, signal: AbortSignal): Promise<ClientHttp2Session> {
  const deadline = deps.clock.within(dialTimeoutMs, signal);
  try {
    return await openGrpcWithRetry(deps, socket, deadline);
  } catch (error) {
    throwIfAborted(signal);
    const why = deadline.aborted ? "context deadline exceeded" : messageOf(error);
    throw failure(`dial failed at socket ${socket}, err: failed to dial socket ${socket}, err: ${why}`, error);
  }
}

async function registerOverSession(
  session: ClientHttp2Session,
  { host: { budget }, handlers, clock }: GrpcDeps & { readonly handlers: PluginHandlers },
  { socket, onAccepted }: { readonly socket: string; readonly onAccepted: (registered: RegisteredPlugin) => void },
  signal: AbortSignal,
): Promise<void> {
  const notify = async (error: string) => {
    const status = RegistrationStatus.fromPartial({ pluginRegistered: error === "", error });
    const within = clock.within(notifyTimeoutMs, signal);
    await unaryCall(session, RegistrationService.notifyRegistrationStatus, status, {
      userAgent,
      signal: within,
      budget,
      limits: smallLimits,
    });
  };
  /** Notifies the plugin why it was rejected. */
  const refuse = async (why: string, cause?: unknown): Promise<never> => {
    await notify(why).catch((error: unknown) => {
      throw failure(`failed to send error at socket ${socket}, err: ${why}: ${messageOf(error)}`, error);
    });
    throw new CodedError(codeOf(cause), why, { cause });
  };
  const pendingInfo = unaryCall(session, RegistrationService.getInfo, InfoRequest.create(), {
    userAgent,
    signal: clock.within(infoTimeoutMs, signal),
    budget,
    limits: smallLimits,
  });
  const info = await pendingInfo.catch((error: unknown) => {
    throwIfAborted(signal);
    throw failure(`failed to get plugin info using RPC GetInfo at socket ${socket}, err: ${messageOf(error)}`, error);
  });
  const handler = Object.hasOwn(handlers, info.type) ? handlers[info.type] : undefined;
  if (!handler) return refuse(`${prefix}no handler registered for plugin type: ${info.type} at socket ${socket}`);
  const plugin = { name: info.name, endpoint: info.endpoint || socket, versions: info.supportedVersions };
  try {
    handler.validate(plugin);
  } catch (error) {
    return refuse(`${prefix}plugin validation failed with err: ${messageOf(error)}`, error);
  }
  onAccepted({ plugin, handler });
  try {
    await handler.register(plugin, signal);
  } catch (error) {
    throwIfAborted(signal);
    return refuse(`${prefix}plugin registration failed with err: ${messageOf(error)}`, error);
  }
  await notify("").catch(async (error: unknown) => {
    throwIfAborted(signal);
    await handler.deregister(plugin, signal);
    throw failure(`failed to send registration status at socket ${socket}, err: ${messageOf(error)}`, error);
  });
}

const prefix = "RegisterPlugin error -- ";

function failure(text: string, cause: unknown): CodedError {
  return new CodedError(codeOf(cause), `${prefix}${text}`, { cause });
}
