import type { PluginHandler, RegisteringPlugin } from "../plugins/ports.ts";
import type { ApiClient } from "../api/client.ts";
import { CodedError, codeOf, messageOf, throwIfAborted, ignoreNotFound } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { CSIDriver, VolumeAttachment } from "../objects.ts";
import type { CsiDrivers } from "../pipeline.ts";
import { type CsiDriverClient, type CsiDriverClientDeps, createCsiDriverClient } from "./client.ts";
import { createLimitUpdates } from "./limit-updates.ts";
import type { CsiNodes } from "./csi-node.ts";
import type { DriverFacts } from "./node-metadata.ts";

export interface CsiDriverRegistryDeps extends CsiDriverClientDeps {
  readonly client: ApiClient;
  readonly csiNodes: CsiNodes;
  readonly log: Logger;
}

export type CsiDriverRegistry = ReturnType<typeof createCsiDriverRegistry>;

interface RegisteredDriver {
  readonly version: Version;
  readonly client: CsiDriverClient;
  facts?: DriverFacts;
  /** True if the cluster has a CSIDriver object of that name. */
  hasCSIDriver?: boolean;
}

/** Maximum number of topology keys in a log line. */
const maxLoggedKeys = 10;

/** Registry of the CSI drivers on the target.
 *  @see https://kubernetes-csi.github.io/docs/ */
export function createCsiDriverRegistry(deps: CsiDriverRegistryDeps) {
  const { client, csiNodes, log } = deps;
  const registered = new Map<string, RegisteredDriver>();
  // Serializes updates: otherwise a late one could add a driver back after its removal.
  const serialize = createSemaphore(1);
  const refreshLimit: CsiDrivers["refreshLimit"] = async (name, signal) => {
    const found = registered.get(name);
    const failed = (what: string) => (error: unknown) => {
      throw new CodedError(codeOf(error), `failed to ${what} ${JSON.stringify(name)}: ${messageOf(error)}`, {
        cause: error,
      });
    };
    if (!found) return failed("create CSI client for driver")(notRegistered(name));
    const facts = await readFacts(found, signal).catch(failed("get NodeGetInfo from driver"));
    found.facts = facts;
    const update = async () => registered.get(name) === found && csiNodes.update(name, facts, signal);
    await serialize(update).catch(failed("update driver"));
  };
  const { show, appeared: onCSIDriver } = createTopologyPublisher(deps, registered, serialize);
  const updates = createLimitUpdates({ client, clock: deps.clock, log, refreshLimit, onCSIDriver });
  const remove = async (name: string, signal: AbortSignal) => {
    registered.delete(name);
    updates.removeDriver(name);
    await serialize(() => csiNodes.uninstall(name, signal)).catch((err: unknown) => {
      if (!signal.aborted) log.warn({ err, driver: name }, "cannot remove a CSI driver from the CSINode");
    });
  };
  const handler: PluginHandler = {
    validate(plugin) {
      try {
        checkVersion("ValidatePlugin", plugin, registered.get(plugin.name));
      } catch (error) {
        const { name, endpoint } = plugin;
        const what = `validation failed for CSI Driver ${name} at endpoint ${endpoint}: `;
        throw new CodedError(codeOf(error), `${what}${messageOf(error)}`, { cause: error });
      }
    },
    async register(plugin, signal) {
      const { name } = plugin;
      const version = checkVersion("RegisterPlugin", plugin, registered.get(name));
      if (name === "") throw new CodedError("invalid_argument", "driver name is empty");
      const driver: RegisteredDriver = { version, client: createCsiDriverClient(deps, plugin) };
      registered.set(name, driver);
      try {
        driver.facts = await readFacts(driver, signal);
        await show(name, driver, driver.facts, signal);
        updates.addDriver(name);
      } catch (error) {
        throwIfAborted(signal);
        await remove(name, signal);
        throw error;
      }
    },
    deregister: ({ name }, signal) => remove(name, signal),
  };
  return {
    /** Handles the registration of drivers. */
    handler,
    /** Registered drivers and what they reported about this node. */
    facts: (): ReadonlyMap<string, DriverFacts> =>
      new Map([...registered].flatMap(([name, { facts }]) => (facts ? [[name, facts] as const] : []))),
    driver(name: string) {
      const found = registered.get(name);
      if (found) return found.client;
      throw notRegistered(name);
    },
    refreshLimit,
    /** Keeps the published volume limits up to date. */
    updates,
    csiDriver: (name: string, signal: AbortSignal) =>
      ignoreNotFound(client.get<CSIDriver>(`/apis/storage.k8s.io/v1/csidrivers/${name}`, { signal })),
    volumeAttachment: (name: string, signal: AbortSignal) =>
      client.get<VolumeAttachment>(`/apis/storage.k8s.io/v1/volumeattachments/${name}`, { signal }),
  };
}

/** Publishes drivers with their topology, and logs the omitted topology keys with the remedy. */
function createTopologyPublisher(
  { csiNodes, log }: Pick<CsiDriverRegistryDeps, "csiNodes" | "log">,
  registered: ReadonlyMap<string, RegisteredDriver>,
  serialize: ReturnType<typeof createSemaphore>,
) {
  const publish = async (name: string, driver: RegisteredDriver, facts: DriverFacts, signal: AbortSignal) => {
    const install = async () => (registered.get(name) === driver ? csiNodes.install(name, facts, signal) : undefined);
    const { hasCSIDriver, omittedKeys } = (await serialize(install)) ?? { hasCSIDriver: true, omittedKeys: [] };
    driver.hasCSIDriver = hasCSIDriver;
    if (omittedKeys.length === 0) return;
    const remedy = hasCSIDriver
      ? "add the keys to driverTopologyKeys if the target may set them as labels of its Node"
      : "create the driver's CSIDriver object";
    const keys = omittedKeys.slice(0, maxLoggedKeys);
    log.warn({ driver: name, keys, remedy }, "topology keys of a CSI driver are not published");
  };
  /** Publishes the topology of a driver that registered before its CSIDriver object was created. */
  const onCSIDriver = async (name: string, signal: AbortSignal) => {
    const found = registered.get(name);
    if (found?.facts && found.hasCSIDriver === false) await publish(name, found, found.facts, signal);
  };
  return { show: publish, appeared: onCSIDriver };
}

function notRegistered(name: string): CodedError {
  return new CodedError("unavailable", `driver name ${name} not found in the list of registered CSI drivers`);
}

async function readFacts({ client }: RegisteredDriver, signal: AbortSignal): Promise<DriverFacts> {
  const { nodeId, maxVolumesPerNode, accessibleTopology } = await client.info(signal);
  return { nodeID: nodeId, maxVolumes: maxVolumesPerNode, topology: accessibleTopology?.segments ?? {} };
}

/** @throws invalid_argument in the kubelet's words. */
function checkVersion(
  caller: string,
  { name, versions }: RegisteringPlugin,
  other: RegisteredDriver | undefined,
): Version {
  const failed = (why: string, cause?: unknown) =>
    new CodedError(
      "invalid_argument",
      `kubernetes.io/csi: ${caller} for CSI driver ${JSON.stringify(name)} failed. ${why}`,
      { cause },
    );
  if (versions.length === 0) throw failed("Plugin returned an empty list for supported versions");
  const highest = highestSupported(versions, failed);
  if (other && !isLess(other.version, highest)) {
    const text = JSON.stringify(formatVersion(other.version));
    throw failed(`Another driver with the same name is already registered with a higher supported version: ${text}`);
  }
  return highest;
}

function highestSupported(versions: readonly string[], failed: (why: string, cause: unknown) => CodedError): Version {
  try {
    return highestVersion(versions);
  } catch (error) {
    const list = `[${versions.map((version) => JSON.stringify(version)).join(" ")}]`;
    throw failed(`None of the versions specified ${list} are supported. err=${messageOf(error)}`, error);
  }
}

/** Components of a version, the most significant first. */
type Version = readonly number[];

/** Version as text. Pure. */
export function formatVersion(version: Version): string {
  return version.join(".");
}

/** The highest version of the service that both the driver and this node support. Pure.
 *  @throws invalid_argument, in the kubelet's words, if there is none. */
export function highestVersion(versions: readonly string[]): Version {
  let highest: Version | undefined;
  let why = "<nil>";
  for (const text of versions.toReversed()) {
    try {
      const version = parseVersion(text);
      if ((version[0] ?? 0) <= 1 && (!highest || isLess(highest, version))) highest = version;
    } catch (error) {
      why = messageOf(error);
    }
  }
  if (!highest)
    throw invalidVersion(
      `could not find a highest supported version from versions ([${versions.join(" ")}]) reported: ${why}`,
    );
  if (highest[0] !== 1)
    throw invalidVersion(`highest supported version reported is ${formatVersion(highest)}, must be v1.x`);
  return highest;
}

/** True if the first version is lower. Pure. */
export function isLess(one: Version, other: Version): boolean {
  const places = Math.max(one.length, other.length);
  for (let at = 0; at < places; at += 1) {
    const [own = 0, others = 0] = [one[at], other[at]];
    if (own !== others) return own < others;
  }
  return false;
}

/** Parses at least two numbers separated by dots; a suffix is ignored. */
function parseVersion(text: string): Version {
  const numbers = /^\s*v?([0-9]+(?:\.[0-9]+)*)/.exec(text)?.[1];
  if (numbers === undefined) throw invalidVersion(`could not parse ${JSON.stringify(text)} as version`);
  const parts = numbers.split(".");
  if (parts.length < 2) throw invalidVersion(`illegal version string ${JSON.stringify(text)}`);
  const [first = ""] = parts;
  if (first.startsWith("0") && first !== "0")
    throw invalidVersion(`illegal zero-prefixed version component ${JSON.stringify(first)} in ${JSON.stringify(text)}`);
  return parts.map(Number);
}

function invalidVersion(why: string): CodedError {
  return new CodedError("invalid_argument", why);
}
