import { systemClock } from "../../src/lib/clock.ts";
import { fakeRuntime } from "../fakes/runtime.ts";
import { runtimeContract } from "./runtime.ts";

runtimeContract("the fake", async () => {
  const runtime = fakeRuntime({ clock: systemClock() });
  const image = "registry.k8s.io/contract/busybox:1";
  runtime.offerImage(image);
  return {
    runtime,
    image,
    missingImage: "registry.k8s.io/contract/no-such:1",
    logDirectory: "/var/log/pods",
    [Symbol.asyncDispose]: () => runtime[Symbol.asyncDispose](),
  };
});
