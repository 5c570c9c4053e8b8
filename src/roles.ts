import type { Pod } from "./objects.ts";

// A node has up to three versions of a pod. They have the same shape but are not interchangeable: each has its own type, and
// one function that creates it.

declare const role: unique symbol;

/** A pod as its source wants it. */
export type AskedPod = Pod & { readonly [role]: { readonly asked: true } };

/** A pod with its allocated resources in place of its requested ones. */
export type GivenPod = Pod & { readonly [role]: { readonly given: true } };

/** The API server's copy of a pod: for a static pod, its mirror pod. */
export type ShownPod = Pod & { readonly [role]: { readonly shown: true } };

/** Marks a pod that came from a source. */
export function askedPod(pod: Pod): AskedPod {
  return pod as AskedPod;
}

/** Marks a pod whose resources are the allocated ones. */
export function givenPod(pod: Pod): GivenPod {
  return pod as GivenPod;
}

/** Marks a pod that came from the API server. */
export function shownPod(pod: Pod): ShownPod {
  return pod as ShownPod;
}
