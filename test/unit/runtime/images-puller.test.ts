import assert from "node:assert/strict";
import { describe, it, test } from "node:test";
import { PodSandboxConfig } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { Container, Secret } from "../../../src/objects.ts";
import type { ImagePullerDeps } from "../../../src/runtime/images/puller.ts";
import { type PullProgress, RuntimeError, type RuntimeReason } from "../../../src/seams/runtime.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { at, failure, setUp } from "./images-rig.ts";

const { signal } = new AbortController();

describe("the pull policy of an image", () => {
  it("uses a present image without pulling it", async () => {
    const { runtime, events, ensure, pulls } = setUp();
    const id = runtime.addImage("busybox:1");
    assert.equal((await ensure()).imageRef, id);
    assert.deepEqual(events, [`${at} Normal Pulled: Container image "busybox:1" already present on machine`]);
    assert.equal(pulls().length, 0);
  });
  it("pulls a missing image and reports duration and size", async () => {
    const { runtime, events, ensure, clock } = setUp();
    runtime.offerImage("busybox:1");
    const release = runtime.hold("pullImage");
    const ensured = ensure();
    await clock.advance(1234);
    release();
    assert.deepEqual((await ensured).image?.repoTags, ["docker.io/library/busybox:1"]);
    assert.deepEqual(events, [
      `${at} Normal Pulling: Pulling image "busybox:1"`,
      `${at} Normal Pulled: Successfully pulled image "busybox:1" in 1.234s (1.234s including waiting). Image size: 1000 bytes.`,
    ]);
  });
  const policies: readonly (readonly [name: string, container: Container, pulled: readonly string[]])[] = [
    [
      "pulls a present image again with policy Always",
      { name: "c", image: "busybox:1", imagePullPolicy: "Always" },
      ["busybox:1"],
    ],
    [
      "pulls a present image again without a policy if its tag is latest",
      { name: "c", image: "busybox" },
      ["busybox:latest"],
    ],
    ["uses a present image without a policy if its tag is not latest", { name: "c", image: "busybox:1" }, []],
  ];
  for (const [name, container, pulled] of policies) {
    it(name, async () => {
      const { runtime, puller, pulls } = setUp();
      runtime.addImage("busybox:1");
      runtime.addImage("busybox");
      await puller.ensure(aPod({ containers: [container] }), container, PodSandboxConfig.fromPartial({}), signal);
      assert.deepEqual(
        pulls().map(({ image }) => image?.image),
        pulled,
      );
    });
  }
  it("never pulls with policy Never", async () => {
    const { ensure, events, pulls } = setUp();
    const message = 'Container image "busybox:1" is not present with pull policy of Never';
    assert.deepEqual(await failure(ensure({ imagePullPolicy: "Never" })), ["ErrImageNeverPull", message, undefined]);
    assert.deepEqual(events, [`${at} Warning ErrImageNeverPull: ${message}`]);
    assert.equal(pulls().length, 0);
  });
  it("rejects an invalid name", async () => {
    const { ensure, events } = setUp();
    const message = `Failed to apply default image tag "Bad Name": couldn't parse image name "Bad Name": invalid reference format: repository name (library/Bad Name) must be lowercase`;
    assert.deepEqual(await failure(ensure({ image: "Bad Name" })), ["InvalidImageName", message, undefined]);
    assert.deepEqual(events, [`${at} Warning InspectFailed: ${message}`]);
  });
  it("reports an inspect failure with its own reason", async () => {
    const { ensure, runtime, events } = setUp();
    runtime.failNext("imageStatus", new CodedError("unavailable", "gone"));
    const message = 'Failed to inspect image "busybox:1": rpc error: code = Unavailable desc = gone';
    assert.deepEqual(await failure(ensure()), ["ImageInspectError", message, undefined]);
    assert.deepEqual(events, [`${at} Warning InspectFailed: ${message}`]);
  });
});

describe("back-off and reasons of failed pulls", () => {
  const text =
    'rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/library/busybox:1": failed to resolve reference "docker.io/library/busybox:1": docker.io/library/busybox:1: not found';
  it("a failed pull backs off per pod: 10 s, doubled up to 5 min", async () => {
    const { ensure, events, clock, pulls } = setUp();
    const started = clock.now();
    assert.deepEqual(await failure(ensure()), ["ErrImagePull", text, started + 10_000]);
    await clock.advance(4000);
    assert.deepEqual(await failure(ensure()), [
      "ImagePullBackOff",
      `Back-off pulling image "busybox:1": ErrImagePull: ${text}`,
      started + 10_000,
    ]);
    assert.deepEqual(events, [
      `${at} Normal Pulling: Pulling image "busybox:1"`,
      `${at} Warning Failed: Failed to pull image "busybox:1": ${text}`,
      `${at} Normal BackOff: Back-off pulling image "busybox:1"`,
    ]);
    assert.equal((await failure(ensure({}, {}, { uid: "other" })))[0], "ErrImagePull");
    assert.equal(pulls().length, 2);
    const delays: number[] = [];
    for (let wait = 6000; delays.length < 6; ) {
      await clock.advance(wait);
      const [reason, , retryAt = 0] = await failure(ensure());
      assert.equal(reason, "ErrImagePull");
      wait = retryAt - clock.now();
      delays.push(wait / 1000);
    }
    assert.deepEqual(delays, [20, 40, 80, 160, 300, 300]);
  });
  it("a failed pull keeps its back-off when the registry recovers", async () => {
    const { ensure, runtime, clock } = setUp();
    await failure(ensure());
    runtime.offerImage("busybox:1");
    assert.equal((await failure(ensure()))[0], "ImagePullBackOff");
    await clock.advance(10_000);
    assert.deepEqual((await ensure()).image?.repoTags, ["docker.io/library/busybox:1"]);
  });
  const named: readonly (readonly [text: string, reason: RuntimeReason, message: string])[] = [
    [
      "RegistryUnavailable: down",
      "RegistryUnavailable",
      "image pull failed for busybox:1 because the registry is unavailable: down",
    ],
    [
      "SignatureValidationFailed",
      "SignatureValidationFailed",
      "image pull failed for busybox:1 because the signature validation failed",
    ],
  ];
  for (const [told, reason, message] of named) {
    it(`a failed pull shows the runtime's reason ${reason}`, async () => {
      const { ensure, runtime, clock } = setUp();
      runtime.failNext("pullImage", new RuntimeError("unknown", reason, told));
      assert.deepEqual(await failure(ensure()), [reason, message, clock.now() + 10_000]);
      assert.equal((await failure(ensure()))[1], `Back-off pulling image "busybox:1": ${reason}: ${message}`);
    });
  }
  it("a failed pull is not recorded if the signal aborted it", async () => {
    const { runtime, puller, events, ensure } = setUp();
    runtime.offerImage("busybox:1");
    runtime.hold("pullImage");
    const stop = new AbortController();
    const container = aContainer("c", { image: "busybox:1", imagePullPolicy: "IfNotPresent" });
    const ensured = puller.ensure(
      aPod({ containers: [container] }),
      container,
      PodSandboxConfig.fromPartial({}),
      stop.signal,
    );
    const rejected = assert.rejects(ensured, { code: "cancelled" });
    await new Promise(setImmediate);
    stop.abort();
    await rejected;
    assert.deepEqual(events, [`${at} Normal Pulling: Pulling image "busybox:1"`]);
    assert.notEqual((await failure(ensure({ imagePullPolicy: "Never" })))[0], "ImagePullBackOff");
  });
});

describe("limits of concurrent pulls", () => {
  const three = ["a:1", "b:1", "c:1"];
  const cases: readonly (readonly [name: string, deps: Partial<ImagePullerDeps>, running: number])[] = [
    ["pulls are concurrent without a limit by default", {}, 3],
    ["concurrent pulls are limited by maxParallelImagePulls", { maxParallel: 2 }, 2],
    ["pulls are serial with serializeImagePulls", { serialize: true, maxParallel: 2 }, 1],
  ];
  for (const [name, deps, running] of cases) {
    it(name, async () => {
      const { runtime, ensure, pulls, events, clock } = setUp(deps);
      for (const image of three) runtime.offerImage(image);
      const release = runtime.hold("pullImage");
      const all = three.map((image) => ensure({ image }));
      await clock.advance(2000);
      assert.equal(pulls().length, running);
      release();
      await Promise.all(all);
      assert.equal(pulls().length, 3);
      const last = events.find((event) => event.includes('Successfully pulled image "c:1"')) ?? "";
      assert.match(last, running === 3 ? /in 2s \(2s including/ : /in 0s \(2s including waiting\)/);
    });
  }
  it("a pull that was cancelled while waiting does not count towards the limit", async () => {
    const { runtime, puller, pulls, clock } = setUp({ serialize: true });
    for (const image of three) runtime.offerImage(image);
    const release = runtime.hold("pullImage");
    const stop = new AbortController();
    const start = (image: string, until: AbortSignal) => {
      const container = aContainer("c", { image, imagePullPolicy: "IfNotPresent" });
      return puller.ensure(aPod({ containers: [container] }), container, PodSandboxConfig.fromPartial({}), until);
    };
    const first = start("a:1", signal);
    const second = assert.rejects(start("b:1", stop.signal), { code: "cancelled" });
    const third = start("c:1", signal);
    await clock.advance(1);
    stop.abort();
    await second;
    release();
    await Promise.all([first, third]);
    assert.deepEqual(
      pulls().map(({ image }) => image?.image),
      ["a:1", "c:1"],
    );
  });
  it("concurrent pulls are rate-limited by registryPullQPS", async () => {
    const { runtime, ensure, clock } = setUp({ qps: 1, burst: 2 });
    for (const image of [...three, "d:1"]) runtime.offerImage(image);
    await ensure({ image: "a:1" });
    await ensure({ image: "b:1" });
    assert.deepEqual((await failure(ensure({ image: "c:1" }))).slice(0, 2), ["ErrImagePull", "pull QPS exceeded"]);
    await clock.advance(1000);
    await ensure({ image: "d:1" });
  });
});

describe("pulls with pull secrets", () => {
  const login = (name: string, username: string): Secret => ({
    metadata: { name, namespace: "default", uid: name },
    type: "kubernetes.io/dockerconfigjson",
    data: {
      ".dockerconfigjson": Buffer.from(
        JSON.stringify({ auths: { "quay.io": { username, password: `hunter2-${username}` } } }),
      ).toString("base64"),
    },
  });
  const image = "quay.io/team/app:1";
  const imagePullSecrets = [{ name: "one" }, { name: "" }, { name: "two" }];
  it("pull secrets are tried one after another until one is accepted", async () => {
    const { runtime, ensure, pulls, lines } = setUp({}, [login("one", "ann"), login("two", "bob")]);
    runtime.offerImage(image);
    runtime.failNext("pullImage", new CodedError("unknown", "denied"));
    await ensure({ image }, { imagePullSecrets });
    assert.deepEqual(
      pulls().map(({ auth }) => [auth?.username, auth?.password]),
      [
        ["ann", "hunter2-ann"],
        ["bob", "hunter2-bob"],
      ],
    );
    assert.doesNotMatch(lines.join(), /hunter2/);
  });
  it("if all pull secrets fail, they are reported as a single failure with each distinct text once", async () => {
    const { runtime, ensure, events } = setUp({}, [login("one", "ann"), login("two", "bob")]);
    runtime.failNext("pullImage", new CodedError("permission_denied", "denied"));
    runtime.failNext("pullImage", new CodedError("unknown", "nothing there"));
    const text = "[rpc error: code = PermissionDenied desc = denied, nothing there]";
    assert.deepEqual((await failure(ensure({ image }, { imagePullSecrets }))).slice(0, 2), ["ErrImagePull", text]);
    assert.equal(events.at(-1), `${at} Warning Failed: Failed to pull image "${image}": ${text}`);
  });
  it("with several pull secrets, an unavailable registry is reported as a single failure, with the runtime's reason", async () => {
    const { runtime, ensure } = setUp({}, [login("one", "ann"), login("two", "bob")]);
    for (let times = 0; times < 2; times += 1)
      runtime.failNext("pullImage", new RuntimeError("unknown", "RegistryUnavailable", "RegistryUnavailable: down"));
    assert.deepEqual((await failure(ensure({ image }, { imagePullSecrets }))).slice(0, 2), [
      "RegistryUnavailable",
      `image pull failed for ${image} because the registry is unavailable: down`,
    ]);
  });
  it("missing pull secrets are named, and the pull continues without them", async () => {
    const { runtime, ensure, pulls, events } = setUp();
    runtime.offerImage(image);
    await ensure({ image }, { imagePullSecrets });
    assert.deepEqual(
      pulls().map(({ auth }) => auth),
      [undefined],
    );
    assert.equal(
      events[0],
      "pod Warning FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (one, two); attempting to pull the image may not succeed.",
    );
  });
  it("a pull secret that cannot be parsed fails the pull, without revealing its content", async () => {
    const broken: Secret = {
      ...login("one", "ann"),
      data: { ".dockerconfigjson": Buffer.from("hunter2").toString("base64") },
    };
    const { ensure, lines, events } = setUp({}, [broken]);
    const message = "image pull secret default/one: .dockerconfigjson is not a JSON object";
    assert.deepEqual(await failure(ensure({ image }, { imagePullSecrets: [{ name: "one" }] })), [
      "ErrImagePull",
      message,
      undefined,
    ]);
    assert.doesNotMatch([...lines, ...events].join(), /hunter2/);
  });
});

describe("progress events of long pulls", () => {
  const pulling = `${at} Normal Pulling: Pulling image "busybox:1"`;
  const slow = (ms: number, progress?: PullProgress) => {
    const clock = fakeClock();
    const images: ImagePullerDeps["images"] = {
      imageStatus: async () => undefined,
      async pullImage(_request, until, onProgress) {
        if (progress) onProgress?.(progress);
        await clock.sleep(ms, until);
        return "id";
      },
    };
    return { ...setUp({ images, clock }), clock };
  };

  it("a long pull is reported after 30 s, then every minute until it ends", async () => {
    const { clock, events, ensure } = slow(100_000, {
      bytes: 1_234_567,
      totalBytes: 2_600_000,
      layers: 3,
      layersDone: 1,
    });
    const ensured = ensure();
    const far = `${at} Normal Pulling: Still pulling image "busybox:1": 1 of 3 MB, 1 of 3 layers`;
    await clock.advance(29_999);
    assert.deepEqual(events, [pulling]);
    await clock.advance(1);
    assert.deepEqual(events, [pulling, far]);
    await clock.advance(70_000);
    await ensured;
    assert.deepEqual(events.slice(0, -1), [pulling, far, far]);
    assert.equal(clock.pending, 0);
  });

  it("a long pull is reported without the total if it is unknown, and not at all if the runtime reports no progress", async () => {
    const unsized = slow(40_000, { bytes: 5_000_000, layers: 2, layersDone: 0 });
    const ensured = unsized.ensure();
    await unsized.clock.advance(40_000);
    await ensured;
    assert.equal(unsized.events[1], `${at} Normal Pulling: Still pulling image "busybox:1": 5 MB, 0 of 2 layers`);
    const silent = slow(40_000);
    const quiet = silent.ensure();
    await silent.clock.advance(40_000);
    await quiet;
    assert.equal(silent.events.filter((event) => event.includes("Pulling")).length, 1);
  });
});

test("counts requested images by outcome", async () => {
  const counted: string[] = [];
  const ensured = (...of: readonly unknown[]) => void counted.push(of.map(String).join(" "));
  const { ensure, runtime } = setUp({ measures: { ...unmeasured.pulls, ensured } });
  const tried = (container: Partial<Container>) => ensure(container).catch(() => undefined);
  await tried({ imagePullPolicy: "Never" });
  runtime.offerImage("busybox:1");
  await tried({});
  await tried({});
  await tried({ imagePullPolicy: "Always" });
  await tried({ image: "No Name" });
  runtime.failNext("imageStatus", new CodedError("unknown", "no"));
  await tried({});
  assert.deepEqual(counted, [
    "Never false undefined",
    "IfNotPresent false true",
    "IfNotPresent true false",
    "Always undefined true",
    "IfNotPresent undefined undefined",
    "IfNotPresent undefined undefined",
  ]);
});
