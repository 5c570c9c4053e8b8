import { existsSync, rmSync } from "node:fs";
import { PassThrough } from "node:stream";
import type { ProviderFactory } from "../../src/seams/provider.ts";
import { fakeHost } from "./host.ts";
import { furnish } from "./machine.ts";
import { fakeRuntime } from "./runtime.ts";

/** A provider whose targets are machines in memory, each node's own, with the image `busybox` to be had. Where the node's configuration
 *  names a file as `faultFile`, the provider writes to a stream that has ended, and at whose errors nothing listens, once it is there. */
export const fakeProvider: ProviderFactory = async ({ config, clock }) => {
  const { faultFile } = (config ?? {}) as { readonly faultFile?: string };
  const watching = faultFile === undefined ? undefined : setInterval(() => breakOnce(faultFile), 200);
  const host = fakeHost({ clock, isRecorded: false });
  furnish(host);
  const runtime = fakeRuntime({ clock, isRecorded: false });
  runtime.offerImage("busybox");
  runtime.offerImage("docker.io/library/busybox");
  const dispose = () => {
    clearInterval(watching);
    return runtime[Symbol.asyncDispose]();
  };
  return { host, runtime, sharing: "exclusive", [Symbol.asyncDispose]: dispose };
};

function breakOnce(file: string): void {
  if (!existsSync(file)) return;
  rmSync(file);
  const stream = new PassThrough();
  stream.end();
  stream.write("after the end");
}
