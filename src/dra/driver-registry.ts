import { addAbortListener } from "node:events";
import type { ClientHttp2Session } from "node:http2";
import type { DeviceHealth } from "../gen/dra-health.ts";
import { openGrpc } from "../host/grpc-session.ts";
import { CodedError, hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { PluginHandler, RegisteringPlugin } from "../plugins/ports.ts";
import {
  type DraDriverClient,
  type DraDriverClientDeps,
  type PrepareService,
  createDraDriverClient,
  prepareServices,
  watchDeviceHealth,
} from "./driver-client.ts";

export interface DriverRegistryDeps extends DraDriverClientDeps {
  /** Called when a driver becomes usable or stops being usable. */
  readonly onUsable: (driver: string, isUsable: boolean) => void;
  /** Receives the health of a driver's devices; undefined if there is no report because its plugin is gone. Absent if health is not
   *  needed. */
  readonly onHealth?: ((driver: string, devices: readonly DeviceHealth[] | undefined) => void) | undefined;
  readonly log: Logger;
}

/** A plugin of a driver. A driver has two plugins during an update. */
interface RegisteredPlugin {
  readonly endpoint: string;
  readonly client: DraDriverClient;
  readonly gone: AbortController;
  /** The connection to the plugin; undefined while there is none. */
  session: ClientHttp2Session | undefined;
}

/** Delays between attempts to connect, milliseconds: gRPC's. */
const initialRetryDelayMs = 1_000;
const maxRetryDelayMs = 120_000;
/** Delay before the health of devices is watched again, milliseconds: the kubelet's. */
const healthRetryDelayMs = 5_000;
/** Time for a plugin to accept a connection, milliseconds. */
const connectTimeoutMs = 20_000;

/** Registry of DRA drivers. Keeps a connection to each plugin, which shows whether the driver is usable.
 *  (kubelet, cm/dra/plugin/dra_plugin_manager.go) */
export function createDraDriverRegistry(deps: DriverRegistryDeps) {
  const plugins = new Map<string, readonly RegisteredPlugin[]>();
  const pluginsOf = (driver: string) => plugins.get(driver) ?? [];
  const reportUsable = (driver: string) =>
    deps.onUsable(
      driver,
      pluginsOf(driver).some(({ session }) => session !== undefined),
    );
  const watch = async (driver: string, plugin: RegisteredPlugin) => {
    await keepConnected(deps, plugin, async (session) => {
      plugin.session = session;
      reportUsable(driver);
      const closed = new AbortController();
      const watching = watchHealth(deps, driver, session, closed.signal);
      if (!session.destroyed) await new Promise<void>((resolve) => session.once("close", resolve));
      plugin.session = undefined;
      closed.abort();
      await watching;
      if (pluginsOf(driver).includes(plugin)) reportUsable(driver);
    });
  };
  const handler: PluginHandler = {
    validate: (plugin) => void chooseService(plugin),
    async register(plugin) {
      const { name, endpoint } = plugin;
      const service = chooseService(plugin);
      if (pluginsOf(name).some((known) => known.endpoint === endpoint))
        throw new CodedError("already_exists", `endpoint ${endpoint} already registered for DRA driver plugin ${name}`);
      const session = () => registered.session;
      const registered: RegisteredPlugin = {
        endpoint,
        client: createDraDriverClient(deps, { driver: name, endpoint, service, session }),
        gone: new AbortController(),
        session: undefined,
      };
      plugins.set(name, [...pluginsOf(name), registered]);
      reportUsable(name);
      void watch(name, registered);
    },
    async deregister({ name, endpoint }) {
      const found = pluginsOf(name).find((known) => known.endpoint === endpoint);
      if (!found) return;
      const left = pluginsOf(name).filter((known) => known !== found);
      if (left.length > 0) plugins.set(name, left);
      else plugins.delete(name);
      found.gone.abort();
      reportUsable(name);
    },
  };
  return {
    handler,
    /** Returns the client of the driver's newest plugin, preferring a connected one. @throws unavailable, in the kubelet's words. */
    driver(name: string): DraDriverClient {
      if (name === "") throw new CodedError("invalid_argument", "DRA driver name is empty");
      const known = pluginsOf(name);
      const plugin = known.findLast(({ session }) => session !== undefined) ?? known.at(-1);
      if (!plugin) throw new CodedError("unavailable", `DRA driver ${name} is not registered`);
      return plugin.client;
    },
    close() {
      for (const plugin of [...plugins.values()].flat()) plugin.gone.abort();
    },
  };
}

/** Keeps a connection to a plugin open, with a new one after each loss, until the plugin is gone. @param use resolves once the session
 *  has closed. */
async function keepConnected(
  { host, clock, log }: DriverRegistryDeps,
  { endpoint, gone }: RegisteredPlugin,
  use: (session: ClientHttp2Session) => Promise<void>,
): Promise<void> {
  const { signal } = gone;
  let delayMs = initialRetryDelayMs;
  while (!signal.aborted) {
    try {
      const session = await openGrpc({ host }, { unix: endpoint }, clock.within(connectTimeoutMs, signal));
      delayMs = initialRetryDelayMs;
      using _ = addAbortListener(signal, () => session.destroy());
      await use(session);
    } catch (err) {
      if (signal.aborted) return;
      log.debug({ err, endpoint }, "cannot connect to DRA driver; retrying");
    }
    await clock.sleep(clock.jitter(0.8, 1.2) * delayMs, signal).catch(() => undefined);
    delayMs = Math.min(delayMs * 1.6, maxRetryDelayMs);
  }
}

/** Follows the health of a driver's devices while its plugin is connected. */
async function watchHealth(
  { host, clock, log, onHealth }: DriverRegistryDeps,
  driver: string,
  session: ClientHttp2Session,
  signal: AbortSignal,
): Promise<void> {
  if (!onHealth) return;
  while (!signal.aborted) {
    try {
      for await (const devices of watchDeviceHealth(session, host, signal)) onHealth(driver, devices);
    } catch (err) {
      // The driver does not report health; only a new version of it could.
      if (hasCode(err, "unimplemented")) return;
      if (!signal.aborted) log.debug({ err, driver }, "cannot watch the health of a DRA driver's devices; retrying");
    } finally {
      onHealth(driver, undefined);
    }
    await clock.sleep(healthRetryDelayMs, signal).catch(() => undefined);
  }
}

/** Chooses the first of the plugin's services that graftlet supports. @throws invalid_argument in the kubelet's words. */
function chooseService({ name, endpoint, versions }: RegisteringPlugin): PrepareService {
  const chosen = versions.flatMap((version) => prepareServices.filter((service) => service === version)).at(0);
  if (chosen) return chosen;
  const list = (services: readonly string[]) => `[${services.map((service) => JSON.stringify(service)).join(" ")}]`;
  const why =
    versions.length === 0
      ? "empty list of supported gRPC services (aka supported versions)"
      : `none of services supported by the plugin (${list(versions)}) are supported by the kubelet (${list(prepareServices)})`;
  throw new CodedError(
    "invalid_argument",
    `invalid supported gRPC versions of DRA driver plugin ${name} at endpoint ${endpoint}: ${why}`,
  );
}
