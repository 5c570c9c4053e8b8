import assert from "node:assert/strict";
import { test } from "node:test";
import { RuntimeHandler, RuntimeHandlerFeatures } from "../../../src/gen/cri.ts";
import { createHandlerFeatures } from "../../../src/runtime/handler-features.ts";
import { aPod } from "../../fakes/pods.ts";

const never = new AbortController().signal;
const features = (recursiveReadOnlyMounts: boolean) => RuntimeHandlerFeatures.fromPartial({ recursiveReadOnlyMounts });
const runtimeClasses = { handler: async (name: string) => `${name}-handler` };

test("a pod has the features of its RuntimeClass's handler, otherwise of the default one", async () => {
  const handlers = [
    RuntimeHandler.fromPartial({ name: "", features: features(true) }),
    RuntimeHandler.fromPartial({ name: "gvisor-handler", features: features(false) }),
  ];
  const featuresOf = createHandlerFeatures(runtimeClasses, () => handlers);
  assert.equal((await featuresOf(aPod(), never))?.recursiveReadOnlyMounts, true);
  assert.equal((await featuresOf(aPod({ runtimeClassName: "gvisor" }), never))?.recursiveReadOnlyMounts, false);
  assert.equal(await featuresOf(aPod({ runtimeClassName: "none" }), never), undefined);
});

test("features are unknown if the runtime does not report handlers", async () => {
  assert.equal(await createHandlerFeatures(runtimeClasses, () => undefined)(aPod(), never), undefined);
});
