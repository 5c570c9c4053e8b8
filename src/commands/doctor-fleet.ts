import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ApiClient } from "../api/client.ts";
import { listAll } from "../api/list-all.ts";
import { secretPath } from "../api/secrets.ts";
import type { FleetConfig } from "../config/fleet-configuration.ts";
import type { NodeConfig } from "../config/node-config.ts";
import { type CheckResult, failure, type Finding, ok, warning } from "../doctor/findings.ts";
import {
  type FleetCondition,
  type GraftedNode,
  graftedNodePath,
  isDeleted,
  readyCondition,
} from "../fleet/grafted-node.ts";
import { loginSecretNames } from "../fleet/login-files.ts";
import { configurationOf, refusalOf } from "../fleet/member-configuration.ts";
import { type GraftedNodePool, poolPath, withDefaults } from "../fleet/pool.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode, ignoreNotFound, messageOf } from "../lib/errors.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { Secret } from "../objects.ts";

export interface FleetExamination {
  readonly fleet: FleetConfig;
  /** Needs the permissions to list GraftedNodes and GraftedNodePools and to get Secrets. */
  readonly client: Pick<ApiClient, "get" | "list">;
  readonly namespace: string;
  /** Name of the only object to examine; undefined for all. */
  readonly node: string | undefined;
  readonly clock: Clock;
  /** Examines a machine, and its node. @param reported findings from the object's status, which come first. */
  examineMachine(config: NodeConfig, reported: readonly Finding[], signal: AbortSignal): Promise<readonly Finding[]>;
  /** Examines the node of a machine that cannot be reached from here. */
  examineNode(nodeName: string, reported: readonly Finding[], signal: AbortSignal): Promise<readonly Finding[]>;
}

/** Findings for one GraftedNode, or for the list of GraftedNodes. */
export interface FleetReport {
  /** Name of the GraftedNode; undefined for findings about the list. */
  readonly node: string | undefined;
  readonly findings: readonly Finding[];
}

/** Number of machines that are examined at once. */
const maxConcurrent = 4;
/** Number of objects up to which successful checks are listed one by one. */
const maxInFull = 20;
const listTimeoutMs = 15_000;
/** Maximum length of a message from an object's status, characters. */
const maxMessage = 1_000;
/** Placeholder for the port of the kubelet API, which the running process chooses for each node. */
const anyPort = 10_250;

/** Examines the machines of a namespace's GraftedNodes, a few at a time, in the order of the list. Writes nothing to the cluster. For
 *  an object with invalid settings, the finding is the reason for its rejection; paused, inactive and leaving objects are skipped with
 *  an explanation. */
export async function* examineFleet(of: FleetExamination, signal: AbortSignal): AsyncGenerator<FleetReport> {
  const { namespace, node } = of;
  const found = await listObjects(of, signal);
  const chosen = "level" in found ? [] : found.objects.filter(({ metadata: { name } }) => name === (node ?? name));
  if ("level" in found || chosen.length === 0) {
    const none = `none in namespace ${namespace}`;
    const result = "level" in found ? found : node === undefined ? ok(none) : noSuchNode(node, namespace);
    yield { node: undefined, findings: [{ check: "GraftedNodes", ...result }] };
    return;
  }
  const shown = chosen.length > maxInFull ? condensed : (findings: readonly Finding[]) => findings;
  const turn = createSemaphore(maxConcurrent);
  const reports = chosen.map(async (object): Promise<FleetReport> => {
    const findings = await turn(() => examineObject(of, object, found.pools, signal), signal);
    return { node: object.metadata.name, findings: shown(findings) };
  });
  const ended = Promise.allSettled(reports);
  try {
    for (const report of reports) yield await report;
  } finally {
    await ended;
  }
}

function noSuchNode(name: string, namespace: string): CheckResult {
  return failure(
    `${name} is neither a node in the configuration nor a GraftedNode in namespace ${namespace}: use another --node`,
  );
}

/** Replaces successful checks by their number. Pure. */
function condensed(findings: readonly Finding[]): readonly Finding[] {
  const kept = findings.filter(({ level, reason }) => level !== "ok" || reason !== undefined);
  const others = findings.length - kept.length;
  return others === 0 ? kept : [...kept, { check: "others", ...ok(`checks passed: ${others}`) }];
}

interface Listed {
  readonly objects: readonly GraftedNode[];
  readonly pools: ReadonlyMap<string, GraftedNodePool>;
}

/** Lists the GraftedNodes and their pools. @returns a failed check if they cannot be listed. */
async function listObjects(
  { client, namespace, clock }: FleetExamination,
  signal: AbortSignal,
): Promise<Listed | CheckResult> {
  const until = clock.within(listTimeoutMs, signal);
  try {
    const objects = await listAll<GraftedNode>(client, graftedNodePath(namespace), {}, until);
    const pools = await listAll<GraftedNodePool>(client, poolPath(namespace), {}, until);
    // Static objects show nodes of the configuration, which are examined as such.
    return {
      objects: objects.filter(({ spec }) => !spec.static),
      pools: new Map(pools.map((pool) => [pool.metadata.name, pool])),
    };
  } catch (error) {
    if (signal.aborted) throw error;
    if (hasCode(error, "not_found"))
      return failure(
        "the cluster has no CustomResourceDefinition of GraftedNodes or GraftedNodePools: install the chart's with helm upgrade --set crds.enabled=true",
      );
    if (hasCode(error, "permission_denied"))
      return failure(`${messageOf(error)}: upgrade the release with rbac.create and fleet.enabled set to true`);
    return failure(messageOf(error));
  }
}

async function examineObject(
  of: FleetExamination,
  own: GraftedNode,
  pools: Listed["pools"],
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const check = "GraftedNode";
  const { poolRef } = own.spec;
  const object = withDefaults(own, poolRef && pools.get(poolRef.name));
  const skipped = reasonToSkip(object);
  if (skipped) return [{ check, ...skipped }];
  const status: Finding = { check, ...statusOf(object) };
  try {
    if (object.spec.ssh.reverse)
      return await of.examineNode(own.metadata.name, [status, { check: "link", ...linkOf(object) }], signal);
    await using directory = await temporaryDirectory();
    const secrets = await readSecrets(of, object, signal);
    const config = await configurationOf(
      {
        fleet: { ...of.fleet, directory: directory.path },
        secret: (name) => secrets.get(name),
        hasPool: (name) => pools.has(name),
        port: anyPort,
      },
      object,
    );
    const withoutPort = { ...config, kubelet: { ...config.kubelet, port: 0 } };
    return await of.examineMachine(withoutPort, [status], signal);
  } catch (error) {
    if (signal.aborted) throw error;
    const { reason, message } = refusalOf(error) ?? { reason: undefined, message: messageOf(error) };
    return [{ check, ...failure(message, reason) }];
  }
}

/** Creates a temporary directory that is deleted with its contents on disposal. */
async function temporaryDirectory(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), "graftlet-doctor-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** Reads the Secrets with an object's SSH credentials, by name; missing ones are omitted. */
async function readSecrets(
  { client, namespace }: FleetExamination,
  object: GraftedNode,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, Secret>> {
  const secrets = new Map<string, Secret>();
  for (const name of new Set(loginSecretNames(object))) {
    const secret = await ignoreNotFound(client.get<Secret>(secretPath(namespace, name), { signal }));
    if (secret) secrets.set(name, secret);
  }
  return secrets;
}

/** Why the machine is not examined; undefined if it is. */
function reasonToSkip(object: GraftedNode): CheckResult | undefined {
  const skip = (reason: string, why: string): CheckResult => ({ level: "ok", reason, message: `not checked: ${why}` });
  const { active, paused } = object.spec;
  const now = readyCondition(object.status);
  if (isDeleted(object)) return skip("Leaving", "the object is being deleted, and its machine is leaving the cluster");
  if (active === false) return skip("Inactive", "spec.active is false");
  if (now?.reason === "Inactive" || now?.reason === "Leaving") return skip(now.reason, messageIn(now));
  return paused ? skip("Paused", "spec.paused is true, so someone may be working on the machine") : undefined;
}

function statusOf({ status }: GraftedNode): CheckResult {
  const ready = readyCondition(status);
  if (!ready) return warning("its status is empty: check that graftlet runs (graftlet status), and its log");
  return ready.status === "True" ? ok(messageIn(ready)) : failure(messageIn(ready), ready.reason);
}

/** What the running process reports about the reverse tunnel of a machine. */
function linkOf({ status }: GraftedNode): CheckResult {
  const linked = status?.conditions?.find(({ type }) => type === "Linked");
  if (!linked)
    return warning("unknown: the machine connects to the running graftlet, which has not reported its connection yet");
  return linked.status === "True"
    ? ok(`${messageIn(linked)}, through its reverse tunnel to the running graftlet; the machine itself is not checked`)
    : failure(messageIn(linked), linked.reason);
}

function messageIn({ message }: FleetCondition): string {
  return message.length <= maxMessage ? message : `${message.slice(0, maxMessage)}…`;
}
