import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { applyObject } from "../api/apply.ts";
import type { ApiClient } from "../api/client.ts";
import { secretPath } from "../api/secrets.ts";
import { serviceAccount } from "../api/service-account.ts";
import type { OptionsOf } from "../config/parse-result.ts";
import { enrolmentSecretName, tokenData } from "../fleet/enrolment.ts";
import { type GraftedNode, graftedNodePath, isDeleted, ownedBy } from "../fleet/grafted-node.ts";
import { type GraftedNodePool, poolPath, withDefaults } from "../fleet/pool.ts";
import { systemClock } from "../lib/clock.ts";
import { CodedError, hasCode } from "../lib/errors.ts";
import { type ClockAndLog, silentLog } from "../lib/log.ts";
import { programText } from "../lib/program-text.ts";
import { enrolmentUser } from "../seams/enrolment.ts";
import type { MachineListeners } from "../seams/machine-listeners.ts";
import { openClient } from "./open-client.ts";
import type { CommandContext } from "./terminal.ts";

type EnrolCommandOptions = OptionsOf<"enrol"> &
  Omit<CommandContext, "providers"> & {
    listeners(deps: ClockAndLog): Promise<Pick<MachineListeners, "publicKeyOf">>;
  };

/** Makes a one-time token for a GraftedNode, and prints the script that its machine runs.
 *  @throws CodedError, one sentence, if the object is missing, or its machine cannot enrol. */
export async function runEnrol(options: EnrolCommandOptions): Promise<void> {
  const { nodeName, fleet, address, validForMs, isApproved, env, terminal, signal } = options;
  const access = serviceAccount(env);
  if (!access || !fleet.listener)
    throw new CodedError(
      "failed_precondition",
      "graftlet enrol needs a Pod's service account; run it in graftlet's Pod",
    );
  const clock = systemClock();
  await using client = openClient(access, clock);
  const namespace = access.namespace();
  const object = await enrollingObject(client, { namespace, nodeName }, signal);
  const { publicKeyOf } = await options.listeners({ clock, log: silentLog() });
  const listenerKey = publicKeyOf(await readFile(fleet.listener.hostKeyFile, "utf8"), undefined);
  const token = randomBytes(16).toString("hex");
  const name = enrolmentSecretName(nodeName);
  const data = tokenData(token, new Date(clock.now() + validForMs), isApproved);
  const secret = { apiVersion: "v1", kind: "Secret", metadata: { name, ...ownedBy(object) }, data };
  await applyObject(client, secretPath(namespace, name), secret, signal, "graftlet-enrolment");
  const variables = {
    node: nodeName,
    login: enrolmentUser(nodeName, token),
    user: object.spec.ssh.user ?? "root",
    host: address.host,
    port: String(address.port),
    listener_key: listenerKey,
  };
  for (const line of enrolmentScript(variables).split("\n")) terminal.print(line);
}

/** The script for a machine, with its variables. Pure. */
function enrolmentScript(variables: Readonly<Record<string, string>>): string {
  const lines = Object.entries(variables).map(([name, value]) => `${name}=${quoted(value)}`);
  return `#!/bin/sh\n${lines.join("\n")}\n${programText("src/commands/enrol.sh").trimEnd()}`;
}

function quoted(value: string): string {
  return `'${value.replaceAll("'", `'\\''`)}'`;
}

/** Reads the object, with the defaults of its pool. @throws CodedError, one sentence, if no machine can enrol for it. */
async function enrollingObject(
  client: Pick<ApiClient, "get">,
  { namespace, nodeName }: { readonly namespace: string; readonly nodeName: string },
  signal: AbortSignal,
): Promise<GraftedNode> {
  try {
    const object = await client.get<GraftedNode>(graftedNodePath(namespace, nodeName), { signal });
    const { poolRef, static: configured } = object.spec;
    if (configured)
      throw new CodedError(
        "failed_precondition",
        `GraftedNode ${nodeName}: the node is configured in the values of release ${configured.release} (\`nodes\`): add the machine's key to authorized_keys of the login's Secret, or remove the node from the values`,
      );
    const pool = poolRef && (await client.get<GraftedNodePool>(poolPath(namespace, poolRef.name), { signal }));
    const whole = withDefaults(object, pool);
    const { reverse } = whole.spec.ssh;
    if (!reverse || reverse.authorizedKeys || isDeleted(object))
      throw new CodedError(
        "failed_precondition",
        `no machine can enrol for GraftedNode ${nodeName}: set its spec.ssh.reverse to {}, without authorizedKeys`,
      );
    return whole;
  } catch (error) {
    if (!hasCode(error, "not_found")) throw error;
    throw new CodedError(
      "not_found",
      `GraftedNode ${nodeName}, or its pool, does not exist in namespace ${namespace}: create it first, with spec.ssh.reverse`,
      { cause: error },
    );
  }
}
