import { join } from "node:path";
import type { ApiClient } from "../api/client.ts";
import type { FleetConfig } from "../config/fleet-configuration.ts";
import type { NodeConfig } from "../config/node-config.ts";
import { nodePath } from "../leave/leave.ts";
import { CodedError, hasCode, ignoreNotFound, messageOf } from "../lib/errors.ts";
import type { Node, Secret } from "../objects.ts";
import type { Cause } from "./conditions.ts";
import {
  certificateSecretName,
  createCertificateSecret,
  kubeletServiceName,
  publishKubeletService,
} from "./endpoint.ts";
import { enrolledMessage, enrolmentSecretName, isMachineApproved, readEnrolment } from "./enrolment.ts";
import { approveHostKeyAnnotation, type GraftedNode } from "./grafted-node.ts";
import { authorizedKeysOf, loginsOf, writeAuthorizedKeys, writeLogin } from "./login-files.ts";
import { nodeEntry } from "./node-entry.ts";
import { RefusedObject } from "./refusal.ts";

/** What is needed to decode an object. */
export interface MemberDecoding {
  readonly fleet: FleetConfig;
  /** The Secret of that name in the fleet's namespace. */
  secret(name: string): Secret | undefined;
  /** True if the pool of that name exists. */
  hasPool(name: string): boolean;
  /** Port of the node's kubelet API in graftlet's Pod. */
  readonly port: number;
}

export interface MemberConfigurationDeps extends MemberDecoding {
  /** Graftlet's own account. */
  readonly client: ApiClient;
  /** Addresses of graftlet's Pod. */
  readonly addresses: () => readonly string[];
}

/** Writes the logins' files, and decodes the specification. @throws RefusedObject, CodedError invalid_argument, one sentence with the
 *  path of the field. */
export async function configurationOf(deps: MemberDecoding, object: GraftedNode): Promise<NodeConfig> {
  const { fleet, port } = deps;
  const { name } = object.metadata;
  const title = `GraftedNode ${name}`;
  if (!fleet.mayHave(name))
    throw new RefusedObject(
      "NameNotAllowed",
      "permission_denied",
      `${title}: no node may have this name: fleet.nodeNames of the release allows ${fleet.nodeNames.join(", ")}`,
    );
  const { poolRef } = object.spec;
  if (poolRef && !deps.hasPool(poolRef.name))
    throw new RefusedObject(
      "PoolMissing",
      "not_found",
      `${title}: spec.poolRef names GraftedNodePool ${JSON.stringify(poolRef.name)}, which does not exist: create it, or remove the reference`,
    );
  const { host, reverse: dialsIn } = object.spec.ssh;
  if (host === undefined && !dialsIn)
    throw new RefusedObject(
      "InvalidConfiguration",
      "invalid_argument",
      `${title}: spec.ssh.host is not given: write the machine's name or address, here or in its pool`,
    );
  const logins = await Promise.all(
    loginsOf(object).map((login, index) =>
      writeLogin(login, login.secretRef && deps.secret(login.secretRef.name), {
        directory: loginDirectoryOf(fleet, object, index),
        at: index === 0 ? "spec.ssh" : `spec.ssh.proxyJump[${index - 1}]`,
      }),
    ),
  );
  const providerID = providerIDOf(fleet, object);
  const kubeletService = fleet.hasServices ? kubeletServiceName(name) : undefined;
  const reverse = dialsIn && (await reverseOf(deps, object));
  const entry = nodeEntry(object, { providerID, port, kubeletService, logins, reverse });
  return fleet.decodeNode(entry, { title, certificateSecret: certificateSecretName(name) });
}

/** The listener for a machine that opens a reverse tunnel, and the file of its public keys. @throws RefusedObject if there is no
 *  listener, or no key. */
async function reverseOf({ fleet, secret }: MemberDecoding, object: GraftedNode) {
  if (!fleet.listener)
    throw new RefusedObject(
      "ListenerMissing",
      "failed_precondition",
      `GraftedNode ${object.metadata.name}: spec.ssh.reverse needs a listener, which release ${fleet.release} does not have: set reverse.existingSecret in its values`,
    );
  const keys = machineKeys(object, secret);
  const authorizedKeysFile = await writeAuthorizedKeys(keys, loginDirectoryOf(fleet, object, 0));
  return { ...fleet.listener, authorizedKeysFile };
}

/** Returns the public keys with which the object's machine may open its reverse tunnel, in the format of sshd's authorized_keys.
 *  @param object with the defaults of its pool, and the keys of its enrolled machine.
 *  @throws RefusedObject if there are none, or the enrolled machine has to be approved. */
export function machineKeys(object: GraftedNode, secret: MemberDecoding["secret"]): string {
  const { ssh } = object.spec;
  const enrolment = readEnrolment(secret(enrolmentSecretName(object.metadata.name)));
  if (enrolment?.machine && !ssh.reverse?.authorizedKeys && !isMachineApproved(object, enrolment))
    throw new RefusedObject(
      "EnrolmentPending",
      "failed_precondition",
      `${enrolledMessage(enrolment.machine)}; if it is the right one, approve it: kubectl annotate gn ${object.metadata.name} --overwrite ${approveHostKeyAnnotation}=${enrolment.machine.hostKeyFingerprint}`,
    );
  return authorizedKeysOf(ssh, ssh.secretRef && secret(ssh.secretRef.name));
}

/** Directory of the files of one login of a node. @param index 0 for the machine, then its jump hosts. */
function loginDirectoryOf(fleet: FleetConfig, object: GraftedNode, index: number): string {
  return join(loginDirectory(fleet, object), String(index));
}

/** Directory of a node's login files. */
export function loginDirectory({ directory }: FleetConfig, { metadata }: GraftedNode): string {
  return join(directory, metadata.name);
}

/** What tells a node of this release from others of its name. */
function providerIDOf(
  { release }: Pick<FleetConfig, "release">,
  { metadata: { name, namespace } }: GraftedNode,
): string {
  return `graftlet://${namespace}/${release}/${name}`;
}

/** True if the Node with the object's name is another's, such as an object's in another namespace. The Node of a kubelet may have no
 *  providerID. */
export function isOtherNode(fleet: Pick<FleetConfig, "release">, object: GraftedNode, node: Node | undefined): boolean {
  return node !== undefined && node.spec?.providerID !== providerIDOf(fleet, object);
}

/** Refuses an object with the name of a Node that is not its own. @throws RefusedObject. */
function refuseOtherNode(fleet: Pick<FleetConfig, "release">, object: GraftedNode, node: Node | undefined): void {
  if (!isOtherNode(fleet, object, node)) return;
  const shown = node?.spec?.providerID || "none";
  throw new RefusedObject(
    "NameTaken",
    "already_exists",
    `Node ${object.metadata.name} is not this object's (its spec.providerID is ${shown}): give the object another name, or delete that Node`,
  );
}

/** Creates what the node needs in the cluster. @throws RefusedObject if its name is another node's. */
export async function prepareInCluster(
  deps: MemberConfigurationDeps,
  object: GraftedNode,
  signal: AbortSignal,
): Promise<void> {
  const { client, fleet, port } = deps;
  refuseOtherNode(fleet, object, await ignoreNotFound(client.get<Node>(nodePath(object.metadata.name), { signal })));
  if (!deps.secret(certificateSecretName(object.metadata.name))) await createCertificateSecret(client, object, signal);
  if (fleet.hasServices)
    await publishKubeletService(client, object, { addresses: deps.addresses(), port, release: fleet.release }, signal);
}

/** Returns why an object is refused; undefined for a temporary error. */
export function refusalOf(error: unknown): Cause | undefined {
  if (error instanceof RefusedObject) return { reason: error.reason, message: error.message };
  if (hasCode(error, "permission_denied")) return { reason: "ForbiddenByCluster", message: messageOf(error) };
  if (error instanceof CodedError && hasCode(error, "invalid_argument"))
    return { reason: "InvalidConfiguration", message: error.message };
  return undefined;
}
