import type { Pod } from "./objects.ts";

// A node holds up to three versions of a pod. They have the same shape and are not interchangeable: each has a type of its own, and
// one function that makes it.

declare const role: unique symbol;

/** A pod as its source wants it. */
export type AskedPod = Pod & { readonly [role]: { readonly asked: true } };

/** A pod with the resources that the node has given it, in place of those that it asks for. */
export type GivenPod = Pod & { readonly [role]: { readonly given: true } };

/** A pod as the API server has it: for a static pod, its mirror pod. */
export type ShownPod = Pod & { readonly [role]: { readonly shown: true } };

/** Marks a pod that came from a source. */
export function askedPod(pod: Pod): AskedPod {
  return pod as AskedPod;
}

/** Marks a pod whose resources are those that it was given. */
export function givenPod(pod: Pod): GivenPod {
  return pod as GivenPod;
}

/** Marks a pod that came from the API server. */
export function shownPod(pod: Pod): ShownPod {
  return pod as ShownPod;
}
