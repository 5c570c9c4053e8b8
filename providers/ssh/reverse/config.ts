import { type ConfigFields, fieldsOf, invalidField } from "../../config-fields.ts";
import { pathOf, portOf } from "../door.ts";

/** A machine that dials in itself, and where graftlet waits for it. */
export interface Reverse {
  /** Address and port of graftlet's own machine to listen at; nodes that name the same ones share the listener. */
  readonly address: string;
  readonly port: number;
  /** Private key by which machines know the listener. */
  readonly hostKeyFile: string;
  /** Public keys of this node's machine, as in sshd's authorized_keys: the key that a machine logs in with tells which node it is. */
  readonly authorizedKeysFile: string;
}

const fields = ["address", "port", "hostKeyFile", "authorizedKeysFile"];

/** Reads `reverse` of the ssh provider. @throws CodedError invalid_argument, a sentence with the field and the remedy. */
export function reverseOf(given: ConfigFields): Reverse | undefined {
  if (given.reverse === undefined) return undefined;
  const at = "providerConfig.reverse";
  if (given.proxy !== undefined)
    throw invalidField(`providerConfig has both reverse and proxy: a machine that dials in is not dialled; keep one.`);
  const write = "write port, hostKeyFile and authorizedKeysFile";
  const {
    address = "0.0.0.0",
    port,
    hostKeyFile,
    authorizedKeysFile,
  } = fieldsOf(given.reverse, { provider: "ssh", known: fields, write, at });
  if (typeof address !== "string" || !/^[\w.:%-]+$/.test(address))
    throw invalidField(
      `${at}.address is ${JSON.stringify(address)}, not an address to listen at: write 0.0.0.0 or leave it out.`,
    );
  return {
    address,
    port: portOf(`${at}.port`, port),
    hostKeyFile: pathOf(`${at}.hostKeyFile`, hostKeyFile),
    authorizedKeysFile: pathOf(`${at}.authorizedKeysFile`, authorizedKeysFile),
  };
}
