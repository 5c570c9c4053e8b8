import { CodedError, codeOf, messageOf } from "../../lib/errors.ts";
import type { VolumeDeps } from "../plugins/plugin.ts";
import { iscsiSourceOf } from "./iscsi-disk.ts";
import type { VolumeUse } from "./plugin.ts";

type Settings = readonly (readonly [name: string, value: string])[];

/** CHAP settings of discovery and session records; undefined if the volume does not use CHAP there. */
export interface ChapSecrets {
  readonly discovery: Settings | undefined;
  readonly session: Settings | undefined;
}

/** Keys of the Secret below `discovery.sendtargets.auth.` and `node.session.auth.`; those that end in `_in` are the target's
 *  credentials (mutual CHAP). */
const keys = ["username", "password", "username_in", "password_in"] as const;

/** Reads a volume's CHAP secrets. The Secret is in the pod's namespace if the volume names none.
 *  @throws an error in the kubelet's words. */
export async function chapSecretsOf(
  { objects }: Pick<VolumeDeps, "objects">,
  { pod, volume }: Pick<VolumeUse, "pod" | "volume">,
  signal: AbortSignal,
): Promise<ChapSecrets> {
  const { chapAuthDiscovery = false, chapAuthSession = false, secretRef } = iscsiSourceOf(volume);
  const needed = chapAuthDiscovery || chapAuthSession;
  const data =
    needed && secretRef?.name ? await read(secretRef.namespace || pod.metadata.namespace, secretRef.name) : {};
  const settings = (prefix: string): Settings =>
    keys.flatMap((key) => {
      const name = `${prefix}.${key}`;
      const value = Buffer.from(data[name] ?? "", "base64").toString();
      return value === "" ? [] : [[name, checkValue(name, value)] as const];
    });
  return {
    discovery: chapAuthDiscovery ? settings("discovery.sendtargets.auth") : undefined,
    session: chapAuthSession ? settings("node.session.auth") : undefined,
  };

  async function read(namespace: string, name: string): Promise<Readonly<Record<string, string>>> {
    const secret = await objects.secret(namespace, name, signal).catch((error: unknown) => {
      const answer = error instanceof Error && error.cause instanceof Error ? error.cause : error;
      const why = `couldn't get secret ${namespace}/${name} error: ${messageOf(answer)}`;
      throw new CodedError(codeOf(error), why, { cause: error });
    });
    return secret.data ?? {};
  }
}

/** Checks that a value can be passed as an argument of a command. @throws failed_precondition, without quoting the value. */
function checkValue(key: string, value: string): string {
  if (!value.includes("\0")) return value;
  throw new CodedError("failed_precondition", `key ${key} of the secret has a NUL byte`);
}
