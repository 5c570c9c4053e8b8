import type { ApiClient } from "../api/client.ts";
import type { PluginHandler, RegisteringPlugin, StorageDrivers } from "../drivers.ts";
import type { Service } from "../lib/service-group.ts";
import { CodedError, codeOf, messageOf, throwIfAborted, ignoreNotFound } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { CSIDriver, VolumeAttachment } from "../objects.ts";
import { type DriverClient, type DriverClientDeps, createDriverClient } from "./client.ts";
import { createCountUpdates } from "./count-updates.ts";
import type { CsiNodes } from "./csi-node.ts";
import type { DriverFacts } from "./facts.ts";
import { type Version, highestVersion, isLess, versionText } from "./versions.ts";

export interface DriversDeps extends DriverClientDeps {
  readonly client: ApiClient;
  readonly csiNodes: CsiNodes;
  readonly log: Logger;
}

export interface Drivers extends StorageDrivers {
  /** Handles the registration of drivers. */
  readonly handler: PluginHandler;
  /** Registered drivers and what they reported about this node. */
  facts(): ReadonlyMap<string, DriverFacts>;
  /** Keeps the published volume limits up to date. */
  readonly updates: Service;
}

interface Known {
  readonly version: Version;
  readonly client: DriverClient;
  facts?: DriverFacts;
  /** True if the cluster has a CSIDriver object of that name. */
  isKnown?: boolean;
}

/** Maximum number of topology keys in a log line. */
const mostKeysLogged = 10;

/** Registry of the CSI drivers on the target.
 *  @see https://kubernetes-csi.github.io/docs/ */
export function createDrivers(deps: DriversDeps): Drivers {
  const { client, csiNodes, log } = deps;
  const known = new Map<string, Known>();
  // Serializes updates: otherwise a late one could add a driver back after its removal.
  const inTurn = createSemaphore(1);
  const refresh: StorageDrivers["refresh"] = async (name, signal) => {
    const found = known.get(name);
    const failed = (what: string) => (error: unknown) => {
      throw new CodedError(codeOf(error), `failed to ${what} ${JSON.stringify(name)}: ${messageOf(error)}`, {
        cause: error,
      });
    };
    if (!found) return failed("create CSI client for driver")(absent(name));
    const facts = await factsOf(found, signal).catch(failed("get NodeGetInfo from driver"));
    found.facts = facts;
    const update = async () => known.get(name) === found && csiNodes.update(name, facts, signal);
    await inTurn(update).catch(failed("update driver"));
  };
  const { show, appeared } = createTopologyShower(deps, known, inTurn);
  const updates = createCountUpdates({ client, clock: deps.clock, log, refresh, appeared });
  const forget = async (name: string, signal: AbortSignal) => {
    known.delete(name);
    updates.end(name);
    await inTurn(() => csiNodes.uninstall(name, signal)).catch((err: unknown) => {
      if (!signal.aborted) log.warn({ err, driver: name }, "cannot remove a CSI driver from the CSINode");
    });
  };
  return {
    handler: {
      validate(plugin) {
        try {
          versionOf("ValidatePlugin", plugin, known.get(plugin.name));
        } catch (error) {
          const { name, endpoint } = plugin;
          const what = `validation failed for CSI Driver ${name} at endpoint ${endpoint}: `;
          throw new CodedError(codeOf(error), `${what}${messageOf(error)}`, { cause: error });
        }
      },
      async register(plugin, signal) {
        const { name } = plugin;
        const version = versionOf("RegisterPlugin", plugin, known.get(name));
        if (name === "") throw new CodedError("invalid_argument", "driver name is empty");
        const driver: Known = { version, client: createDriverClient(deps, plugin) };
        known.set(name, driver);
        try {
          driver.facts = await factsOf(driver, signal);
          await show(name, driver, driver.facts, signal);
          updates.begin(name);
        } catch (error) {
          throwIfAborted(signal);
          await forget(name, signal);
          throw error;
        }
      },
      deregister: ({ name }, signal) => forget(name, signal),
    },
    facts: () => new Map([...known].flatMap(([name, { facts }]) => (facts ? [[name, facts] as const] : []))),
    driver(name) {
      const found = known.get(name);
      if (found) return found.client;
      throw absent(name);
    },
    refresh,
    updates,
    about: (name, signal) =>
      ignoreNotFound(client.get<CSIDriver>(`/apis/storage.k8s.io/v1/csidrivers/${name}`, { signal })),
    attachment: (name, signal) =>
      client.get<VolumeAttachment>(`/apis/storage.k8s.io/v1/volumeattachments/${name}`, { signal }),
  };
}

/** Publishes drivers with their topology, and logs which keys were omitted and what to do. */
function createTopologyShower(
  { csiNodes, log }: Pick<DriversDeps, "csiNodes" | "log">,
  known: ReadonlyMap<string, Known>,
  inTurn: ReturnType<typeof createSemaphore>,
) {
  const show = async (name: string, driver: Known, facts: DriverFacts, signal: AbortSignal) => {
    const install = async () => (known.get(name) === driver ? csiNodes.install(name, facts, signal) : undefined);
    const { isKnown, leftOut } = (await inTurn(install)) ?? { isKnown: true, leftOut: [] };
    driver.isKnown = isKnown;
    if (leftOut.length === 0) return;
    const remedy = isKnown
      ? "add the keys to driverTopologyKeys if the target may set them as labels of its Node"
      : "create the driver's CSIDriver object";
    const keys = leftOut.slice(0, mostKeysLogged);
    log.warn({ driver: name, keys, remedy }, "topology keys of a CSI driver are not published");
  };
  /** Publishes the topology of a driver that registered before its CSIDriver object was created. */
  const appeared = async (name: string, signal: AbortSignal) => {
    const found = known.get(name);
    if (found?.facts && found.isKnown === false) await show(name, found, found.facts, signal);
  };
  return { show, appeared };
}

function absent(name: string): CodedError {
  return new CodedError("unavailable", `driver name ${name} not found in the list of registered CSI drivers`);
}

async function factsOf({ client }: Known, signal: AbortSignal): Promise<DriverFacts> {
  const { nodeId, maxVolumesPerNode, accessibleTopology } = await client.info(signal);
  return { nodeID: nodeId, maxVolumes: maxVolumesPerNode, topology: accessibleTopology?.segments ?? {} };
}

/** @throws invalid_argument in the kubelet's words. */
function versionOf(caller: string, { name, versions }: RegisteringPlugin, other: Known | undefined): Version {
  const failed = (why: string, cause?: unknown) =>
    new CodedError(
      "invalid_argument",
      `kubernetes.io/csi: ${caller} for CSI driver ${JSON.stringify(name)} failed. ${why}`,
      { cause },
    );
  if (versions.length === 0) throw failed("Plugin returned an empty list for supported versions");
  const highest = supported(versions, failed);
  if (other && !isLess(other.version, highest)) {
    const text = JSON.stringify(versionText(other.version));
    throw failed(`Another driver with the same name is already registered with a higher supported version: ${text}`);
  }
  return highest;
}

function supported(versions: readonly string[], failed: (why: string, cause: unknown) => CodedError): Version {
  try {
    return highestVersion(versions);
  } catch (error) {
    const list = `[${versions.map((version) => JSON.stringify(version)).join(" ")}]`;
    throw failed(`None of the versions specified ${list} are supported. err=${messageOf(error)}`, error);
  }
}
