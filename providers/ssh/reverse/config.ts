import { type ConfigFields, readConfigFields, invalidField } from "../../config-fields.ts";
import { readPath, readPort } from "../endpoint.ts";

/** Listener for a reverse tunnel: the machine connects to graftlet with `ssh -R`. */
export interface ReverseTunnelConfig {
  /** Address and port on graftlet's own machine to listen on; nodes with the same address and port share a listener. */
  readonly address: string;
  readonly port: number;
  /** Host key (private key) of the listener. */
  readonly hostKeyFile: string;
  /** Public keys of this node's machine, as in sshd's authorized_keys: the key of a login identifies the node. */
  readonly authorizedKeysFile: string;
}

const fields = ["address", "port", "hostKeyFile", "authorizedKeysFile"];

/** Reads `reverse` of the ssh provider. @throws CodedError invalid_argument, a sentence with the field and the remedy. */
export function readReverseTunnel(given: ConfigFields): ReverseTunnelConfig | undefined {
  if (given.reverse === undefined) return undefined;
  const at = "providerConfig.reverse";
  if (given.proxy !== undefined)
    throw invalidField(
      `providerConfig has both reverse and proxy: with reverse the machine connects to graftlet; keep one.`,
    );
  const write = "write port, hostKeyFile and authorizedKeysFile";
  const {
    address = "0.0.0.0",
    port,
    hostKeyFile,
    authorizedKeysFile,
  } = readConfigFields(given.reverse, { provider: "ssh", known: fields, write, at });
  if (typeof address !== "string" || !/^[\w.:%-]+$/.test(address))
    throw invalidField(
      `${at}.address is ${JSON.stringify(address)}, not an address to listen on: write 0.0.0.0 or leave it out.`,
    );
  return {
    address,
    port: readPort(`${at}.port`, port),
    hostKeyFile: readPath(`${at}.hostKeyFile`, hostKeyFile),
    authorizedKeysFile: readPath(`${at}.authorizedKeysFile`, authorizedKeysFile),
  };
}
