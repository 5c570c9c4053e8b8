import { join } from "node:path";
import type { NodeConfig } from "../config/node-config.ts";
import type { GraftedNode } from "./grafted-node.ts";
import { deleteLogins } from "./login-files.ts";
import { configurationOf, loginDirectory, type MemberDecoding } from "./member-configuration.ts";

export interface ReachMachineDeps extends Omit<MemberDecoding, "port"> {
  /** Returns the object with its pool's defaults, and the keys of its enrolled machine. */
  effective(object: GraftedNode): GraftedNode;
  /** Connects to the machine of a node and runs a command there. @throws if that fails. */
  reach(config: NodeConfig, signal: AbortSignal): Promise<void>;
}

/** Any port: nothing listens on it. */
const port = 10_250;

/** Returns a function that connects to an object's machine as its owner does, and changes nothing there. It throws if the object is refused,
 *  or its machine is not reached. */
export function createReachMachine({ fleet, effective, reach, ...decoding }: ReachMachineDeps) {
  // A member of the same name may begin meanwhile, and has files of its own.
  const apart = { ...fleet, directory: join(fleet.directory, ".reach") };
  return async (object: GraftedNode, signal: AbortSignal): Promise<void> => {
    const completed = effective(object);
    try {
      await reach(await configurationOf({ ...decoding, fleet: apart, port }, completed), signal);
    } finally {
      await deleteLogins(loginDirectory(apart, completed));
    }
  };
}
