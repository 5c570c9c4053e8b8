import type { ClientHttp2Session } from "node:http2";
import type { PluginHandler, RegisteringPlugin } from "../drivers.ts";
import { InfoRequest, RegistrationService, RegistrationStatus } from "../gen/plugin-registration.ts";
import { type GrpcDeps, openGrpcWithRetry } from "../host/grpc-session.ts";
import { smallLimits } from "../lib/bounded-decode.ts";
import { CodedError, codeOf, messageOf, throwIfAborted } from "../lib/errors.ts";
import { unaryCall } from "../lib/grpc.ts";

/** A registered plugin and its handler. */
export interface Registered {
  readonly plugin: RegisteringPlugin;
  readonly handler: PluginHandler;
}

/** Handlers by plugin type. */
export type PluginHandlers = Readonly<Record<string, PluginHandler>>;

const userAgent = "graftlet-plugin-manager";
/** Timeouts, milliseconds: the kubelet's. */
const dialMs = 10_000;
const infoMs = 1_000;
const notifyMs = 5_000;

/** Asks the plugin behind a socket for its info, has the handler of its type register it, and notifies the plugin of the
 *  outcome.
 *  @param taking called with the plugin just before its handler registers it, so that its removal meanwhile is not missed.
 *  @throws CodedError in the kubelet's words; the plugin is not registered then. */
export async function registerPlugin(
  deps: GrpcDeps & { readonly handlers: PluginHandlers },
  socket: string,
  taking: (registered: Registered) => void,
  signal: AbortSignal,
): Promise<void> {
  const session = await dial(deps, socket, signal);
  try {
    await registerOn(session, deps, { socket, taking }, signal);
  } finally {
    session.destroy();
  }
}

async function dial(deps: GrpcDeps, socket: string, signal: AbortSignal): Promise<ClientHttp2Session> {
  const patience = deps.clock.within(dialMs, signal);
  try {
    return await openGrpcWithRetry(deps, socket, patience);
  } catch (error) {
    throwIfAborted(signal);
    const why = patience.aborted ? "context deadline exceeded" : messageOf(error);
    throw failure(`dial failed at socket ${socket}, err: failed to dial socket ${socket}, err: ${why}`, error);
  }
}

interface Registering {
  readonly socket: string;
  readonly taking: (registered: Registered) => void;
}

async function registerOn(
  session: ClientHttp2Session,
  { host: { budget }, handlers, clock }: GrpcDeps & { readonly handlers: PluginHandlers },
  { socket, taking }: Registering,
  signal: AbortSignal,
): Promise<void> {
  const notify = async (error: string) => {
    const status = RegistrationStatus.fromPartial({ pluginRegistered: error === "", error });
    const within = clock.within(notifyMs, signal);
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
  const asked = unaryCall(session, RegistrationService.getInfo, InfoRequest.create(), {
    userAgent,
    signal: clock.within(infoMs, signal),
    budget,
    limits: smallLimits,
  });
  const info = await asked.catch((error: unknown) => {
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
  taking({ plugin, handler });
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
