import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { condition, images, statusOf } from "../harness/pods.ts";
import { pullSecret } from "../harness/pull-secret.ts";

let lab: Lab;
before(async () => {
  lab = await startLab("images", { args: ["-v=6"] });
});
after(() => lab?.[Symbol.asyncDispose]());

const waits = (pod: Pod, reason: string): boolean => statusOf(pod)?.state?.waiting?.reason === reason;
const messageOf = (pod: Pod): string => statusOf(pod)?.state?.waiting?.message ?? "";
const pulled = (image: string): RegExp =>
  new RegExp(
    `^Successfully pulled image "${image}" in [0-9.]+m?s \\([0-9.]+m?s including waiting\\)\\. Image size: [1-9]\\d* bytes\\.$`,
  );

// By itself: it begins with a machine that has no image.
test("policy IfNotPresent pulls once, Always each time, Never not at all", async () => {
  const { pods } = lab;
  const container = (imagePullPolicy: string) => ({ containers: [{ image: images.busybox, imagePullPolicy }] });
  const reasons = async (name: string) =>
    (await pods.events(name))
      .map(({ reason }) => reason)
      .filter((reason) => reason === "Pulling" || reason === "Pulled");
  const present = `Container image "${images.busybox}" already present on machine and can be accessed by the pod`;
  await pods.create("if-absent", container("IfNotPresent"));
  await pods.ready("if-absent");
  await pods.event("if-absent", "Pulling", `Pulling image "${images.busybox}"`);
  await pods.event("if-absent", "Pulled", pulled(images.busybox));
  await Promise.all([
    pods.create("if-present", container("IfNotPresent")),
    pods.create("always", container("Always")),
    pods.create("never", container("Never")),
  ]);
  await Promise.all(["if-present", "always", "never"].map((name) => pods.ready(name)));
  await Promise.all([
    pods.event("if-present", "Pulled", present),
    pods.event("never", "Pulled", present),
    pods.event("always", "Pulled", pulled(images.busybox)),
  ]);
  assert.deepEqual(await Promise.all(["if-present", "always", "never"].map(reasons)), [
    ["Pulled"],
    ["Pulling", "Pulled"],
    ["Pulled"],
  ]);
});

describe("image pulls", { concurrency: 4 }, () => {
  test("with policy Never, reports a missing image and starts nothing", async () => {
    const { pods } = lab;
    const image = "registry.k8s.io/e2e-test-images/nginx:1.15-4";
    await pods.create("never-absent", { containers: [{ image, imagePullPolicy: "Never" }] });
    const pod = await pods.until("never-absent", "to be refused", (one) => waits(one, "ErrImageNeverPull"));
    const message = `Container image "${image}" is not present with pull policy of Never`;
    assert.deepEqual([messageOf(pod), pod.status?.phase, statusOf(pod)?.restartCount], [message, "Pending", 0]);
    await pods.event("never-absent", "ErrImageNeverPull", message);
    await pods.event("never-absent", "Failed", "Error: ErrImageNeverPull");
  });

  test("a missing image is reported as ErrImagePull, then ImagePullBackOff, until the pod names another image", async () => {
    const { pods } = lab;
    const image = "registry.k8s.io/e2e-test-images/no-such-image:1";
    await pods.create("absent", { containers: [{ image }, { name: "other" }] });
    const failed = await pods.until("absent", "the pull to fail", (pod) => waits(pod, "ErrImagePull"));
    assert.match(messageOf(failed), /no-such-image:1.*not found/);
    const backedOff = await pods.until("absent", "the pull to be backed off", (pod) => waits(pod, "ImagePullBackOff"));
    assert.equal(messageOf(backedOff), `Back-off pulling image "${image}": ErrImagePull: ${messageOf(failed)}`);
    assert.equal(backedOff.status?.phase, "Pending");
    assert.ok(
      statusOf(
        await pods.until(
          "absent",
          "the other container to run",
          (pod) => statusOf(pod, "other")?.state?.running !== undefined,
        ),
      ),
    );
    await pods.event("absent", "Failed", `Failed to pull image "${image}": ${messageOf(failed)}`);
    await pods.event("absent", "Failed", "Error: ErrImagePull");
    await pods.event("absent", "BackOff", `Back-off pulling image "${image}"`);
    await pods.event("absent", "Failed", "Error: ImagePullBackOff");
    await pods.patch("absent", { spec: { containers: [{ name: "main", image: images.busybox }] } });
    const ready = await pods.ready("absent");
    assert.deepEqual([statusOf(ready)?.restartCount, statusOf(ready, "other")?.restartCount], [0, 0]);
  });

  test("rejects an invalid image name", async () => {
    const { pods } = lab;
    await pods.create("misnamed", { containers: [{ image: "Not/An Image" }] });
    const pod = await pods.until("misnamed", "to be refused", (one) => waits(one, "InvalidImageName"));
    assert.equal(
      messageOf(pod),
      'Failed to apply default image tag "Not/An Image": couldn\'t parse image name "Not/An Image": invalid reference format: repository name (An Image) must be lowercase',
    );
    await pods.event("misnamed", "InspectFailed", messageOf(pod));
    await pods.event("misnamed", "Failed", "Error: InvalidImageName");
  });

  test("pulls with imagePullSecrets, and logs none of them", async () => {
    const { pods, cluster, agent } = lab;
    const { username, password } = cluster.privateCredentials;
    await cluster.apply([pullSecret(cluster, "right"), pullSecret(cluster, "wrong", "guess")]);
    const create = (name: string, ...secrets: string[]) =>
      pods.create(name, {
        imagePullSecrets: secrets.map((secret) => ({ name: secret })),
        containers: [{ image: cluster.privateImage, imagePullPolicy: "Always" }],
      });
    await Promise.all([
      create("no-secret"),
      create("wrong-secret", "wrong"),
      create("lost-secret", "lost"),
      create("right-secret", "right"),
      create("two-secrets", "wrong", "right"),
    ]);
    await Promise.all(["right-secret", "two-secrets"].map((name) => pods.ready(name)));
    for (const name of ["no-secret", "wrong-secret", "lost-secret"]) {
      const pod = await pods.until(
        name,
        "to be refused",
        (one) => waits(one, "ErrImagePull") || waits(one, "ImagePullBackOff"),
      );
      assert.equal(condition(pod, "Ready")?.status, "False");
    }
    await pods.event(
      "lost-secret",
      "FailedToRetrieveImagePullSecret",
      "Unable to retrieve some image pull secrets (lost); attempting to pull the image may not succeed.",
    );
    const encoded = Buffer.from(`${username}:${password}`).toString("base64");
    for (const secret of [password, encoded]) assert.ok(!agent.log().includes(secret));
  });

  test("denies pods without credentials an image that was pulled with a secret", async () => {
    const { pods, cluster } = lab;
    const secrets = ["owner", "copy"].map((name) => pullSecret(cluster, name));
    await cluster.apply([...secrets, pullSecret(cluster, "other", "guess")]);
    const create = (name: string, imagePullPolicy: string, ...secrets: string[]) =>
      pods.create(name, {
        imagePullSecrets: secrets.map((secret) => ({ name: secret })),
        containers: [{ image: cluster.privateImage, imagePullPolicy }],
      });
    await create("owns", "IfNotPresent", "owner");
    await pods.ready("owns");
    await Promise.all([
      create("copies", "Never", "copy"),
      create("asks", "IfNotPresent", "other"),
      create("has-none", "Never"),
    ]);
    await pods.ready("copies");
    const present = `Container image "${cluster.privateImage}" already present on machine and can be accessed by the pod`;
    await pods.event("copies", "Pulled", present);
    await pods.until(
      "asks",
      "the registry to refuse",
      (one) => waits(one, "ErrImagePull") || waits(one, "ImagePullBackOff"),
    );
    const pod = await pods.until("has-none", "to be refused", (one) => waits(one, "ErrImageNeverPull"));
    const absent = `Container image "${cluster.privateImage}" is not present with pull policy of Never`;
    assert.equal(messageOf(pod), absent, "as if it were not there");
  });
});
