import type { ProviderFactory } from "../../src/seams/provider.ts";
import { fakeHost } from "./host.ts";
import { furnish } from "./machine.ts";
import { fakeRuntime } from "./runtime.ts";

/** A provider whose targets are machines in memory, each node's own, with the image `busybox` to be had. */
export const fakeProvider: ProviderFactory = async ({ clock }) => {
  const host = fakeHost({ clock });
  furnish(host);
  const runtime = fakeRuntime({ clock });
  runtime.offerImage("busybox");
  runtime.offerImage("docker.io/library/busybox");
  return { host, runtime, sharing: "exclusive", [Symbol.asyncDispose]: () => runtime[Symbol.asyncDispose]() };
};
