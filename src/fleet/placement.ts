import { hash } from "node:crypto";

/** An object to be placed, and the replica that serves it. */
export interface PlacedObject {
  readonly name: string;
  /** UID of its owner; undefined if it has none, or none that is alive. */
  readonly owner: string | undefined;
}

/** Chooses a replica for each object without owner: one with the fewest objects, and of several such the one that ranks the object
 *  highest (rendezvous hashing). Objects with an owner stay where they are. All replicas that see the same objects and replicas choose
 *  alike. Pure.
 *  @param replicas UIDs of the replicas that accept objects. @returns UIDs of replicas by the names of objects. */
export function placementOf(
  objects: readonly PlacedObject[],
  replicas: readonly string[],
): ReadonlyMap<string, string> {
  const loads = loadsOf(objects, replicas);
  const placed = new Map<string, string>();
  const unowned = objects.filter(({ owner }) => owner === undefined).map(({ name }) => name);
  for (const name of unowned.toSorted()) {
    const fewest = Math.min(...loads.values());
    const idle = replicas.filter((uid) => loads.get(uid) === fewest);
    const [chosen] = idle.toSorted((one, other) => compareText(score(name, other), score(name, one)));
    if (chosen === undefined) break;
    loads.set(chosen, fewest + 1);
    placed.set(name, chosen);
  }
  return placed;
}

/** Names of the objects that a replica should give away so that all replicas have the same number of objects, or one more: those that it
 *  ranks lowest. The remainder of the division stays with the replicas that have most. Pure.
 *  @param replicas as for `placementOf`. @param self UID of the replica that asks. */
export function surplusOf(
  objects: readonly PlacedObject[],
  replicas: readonly string[],
  self: string,
): readonly string[] {
  if (!replicas.includes(self)) return [];
  const loads = [...loadsOf(objects, replicas)].toSorted(
    ([one, load], [other, otherLoad]) => otherLoad - load || compareText(one, other),
  );
  const rank = loads.findIndex(([uid]) => uid === self);
  const share = Math.floor(objects.length / replicas.length) + (rank < objects.length % replicas.length ? 1 : 0);
  const own = objects.filter(({ owner }) => owner === self).map(({ name }) => name);
  const surplus = own.length - share;
  if (surplus <= 0) return [];
  return own.toSorted((one, other) => compareText(score(one, self), score(other, self))).slice(0, surplus);
}

/** Returns how many of the replicas rank the object higher than this one does; undefined if this one is not among them. Pure. */
export function rankOf(name: string, replicas: readonly string[], self: string): number | undefined {
  if (!replicas.includes(self)) return undefined;
  const own = score(name, self);
  return replicas.filter((uid) => compareText(score(name, uid), own) > 0).length;
}

/** Number of objects of each replica. */
function loadsOf(objects: readonly PlacedObject[], replicas: readonly string[]): Map<string, number> {
  const loads = new Map(replicas.map((uid) => [uid, 0]));
  for (const { owner } of objects) {
    const load = owner === undefined ? undefined : loads.get(owner);
    if (owner !== undefined && load !== undefined) loads.set(owner, load + 1);
  }
  return loads;
}

function score(name: string, replica: string): string {
  return hash("sha256", `${replica}/${name}`, "hex");
}

/** Orders texts by their code units. Pure. */
export function compareText(one: string, other: string): number {
  return one < other ? -1 : Number(one > other);
}
