import type { Pod } from "./objects.ts";

// A node has up to three versions of a pod. They have the same shape but are not interchangeable: each has its own type, and
// one function that creates it.

declare const role: unique symbol;

/** A pod as its source wants it. */
export type DesiredPod = Pod & { readonly [role]: { readonly asked: true } };

/** A pod with its allocated resources in place of its requested ones. */
export type AllocatedPod = Pod & { readonly [role]: { readonly given: true } };

/** The API server's copy of a pod: for a static pod, its mirror pod. */
export type ApiPod = Pod & { readonly [role]: { readonly shown: true } };

/** Marks a pod that came from a source. */
export function desiredPod(pod: Pod): DesiredPod {
  return pod as DesiredPod;
}

/** Marks a pod whose resources are the allocated ones. */
export function allocatedPod(pod: Pod): AllocatedPod {
  return pod as AllocatedPod;
}

/** Marks a pod that came from the API server. */
export function apiPod(pod: Pod): ApiPod {
  return pod as ApiPod;
}
