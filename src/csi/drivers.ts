import type { ApiClient } from "../api/client.ts";
import type { PluginHandler, RegisteringPlugin, StorageDrivers } from "../drivers.ts";
import type { GrpcDeps } from "../host/grpc-session.ts";
import { CodedError, codeOf, messageOf, throwIfAborted, unlessGone } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { CSIDriver, VolumeAttachment } from "../objects.ts";
import { type DriverClient, createDriverClient } from "./client.ts";
import type { CsiNodes } from "./csi-node.ts";
import type { DriverFacts } from "./facts.ts";
import { type Version, highestVersion, isLess, versionText } from "./versions.ts";

export interface DriversDeps extends GrpcDeps {
  readonly client: ApiClient;
  readonly csiNodes: CsiNodes;
  readonly log: Logger;
}

export interface Drivers extends StorageDrivers {
  /** Takes drivers that register. */
  readonly handler: PluginHandler;
  /** Registered drivers and their facts of this node. */
  facts(): ReadonlyMap<string, DriverFacts>;
}

interface Known {
  readonly version: Version;
  readonly client: DriverClient;
  facts?: DriverFacts;
}

/** The storage drivers on the target.
 *  @see https://kubernetes-csi.github.io/docs/ */
export function createDrivers(deps: DriversDeps): Drivers {
  const { client, csiNodes, log } = deps;
  const known = new Map<string, Known>();
  const forget = async (name: string, signal: AbortSignal) => {
    known.delete(name);
    await csiNodes.uninstall(name, signal).catch((err: unknown) => {
      if (!signal.aborted) log.warn({ err, driver: name }, "a storage driver could not be taken back from the node");
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
        const { name, endpoint } = plugin;
        const version = versionOf("RegisterPlugin", plugin, known.get(name));
        if (name === "") throw new CodedError("invalid_argument", "driver name is empty");
        const driver: Known = { version, client: createDriverClient(deps, endpoint) };
        known.set(name, driver);
        try {
          const info = await driver.client.info(signal);
          const topology = info.accessibleTopology?.segments ?? {};
          driver.facts = { nodeID: info.nodeId, maxVolumes: info.maxVolumesPerNode, topology };
          await csiNodes.install(name, driver.facts, signal);
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
      throw new CodedError("unavailable", `driver name ${name} not found in the list of registered CSI drivers`);
    },
    about: (name, signal) =>
      unlessGone(client.get<CSIDriver>(`/apis/storage.k8s.io/v1/csidrivers/${name}`, { signal })),
    attachment: (name, signal) =>
      client.get<VolumeAttachment>(`/apis/storage.k8s.io/v1/volumeattachments/${name}`, { signal }),
  };
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
