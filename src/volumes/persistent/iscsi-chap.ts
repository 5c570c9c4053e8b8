import { CodedError, codeOf, messageOf } from "../../lib/errors.ts";
import type { VolumeDeps } from "../plugins/plugin.ts";
import { iscsiSourceOf } from "./iscsi-disk.ts";
import type { VolumeUse } from "./plugin.ts";

type Settings = readonly (readonly [name: string, value: string])[];

/** Settings of records that authenticate by CHAP; undefined where a volume does not ask for it. */
export interface ChapSecrets {
  readonly discovery: Settings | undefined;
  readonly session: Settings | undefined;
}

/** Keys of the Secret below `discovery.sendtargets.auth.` and `node.session.auth.`; those ending in `_in` are the target's. */
const keys = ["username", "password", "username_in", "password_in"] as const;

/** Reads the CHAP secrets that a volume asks for. A volume without a namespace for its Secret takes that of the pod.
 *  @throws in the kubelet's words. */
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

/** A value is one argument of a command. @throws failed_precondition, without the value. */
function checkValue(key: string, value: string): string {
  if (!value.includes("\0")) return value;
  throw new CodedError("failed_precondition", `key ${key} of the secret has a NUL byte`);
}
