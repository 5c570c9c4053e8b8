import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { images, shell, statusOf } from "../harness/pods.ts";
import { volumesLab } from "../harness/volumes.ts";

let lab: Lab;
before(async () => {
  lab = await startLab("volumes", volumesLab);
});
after(() => lab?.[Symbol.asyncDispose]());

const volumes = [{ name: "tools", image: { reference: images.busybox } }];

describe("image volumes", { concurrency: 4 }, () => {
  test("containerd mounts image volumes read-only, in whole or in part", async (t) => {
    const { pods, cluster } = lab;
    if (cluster.provider !== "cri" || cluster.containerd === "1.6") return t.skip("the runtime mounts no images");
    const script =
      "test -x /whole/bin/busybox && echo whole; test -x /part/busybox && echo part; touch /whole/new; true";
    const volumeMounts = [
      { name: "tools", mountPath: "/whole" },
      { name: "tools", mountPath: "/part", subPath: "bin" },
    ];
    const output = await pods.output("reads", shell(`(${script}) 2>&1`, { volumeMounts }), { volumes });
    assert.match(output, /^whole\npart\ntouch: .*[Rr]ead-only file system/);
    const served = await cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/pods`]);
    const { items } = JSON.parse(served) as { items: readonly Pod[] };
    const { status } = items.find(({ metadata }) => metadata.name === "reads") ?? {};
    const imageRefs = status?.containerStatuses?.[0]?.volumeMounts?.map((mount) => mount.volumeStatus?.image?.imageRef);
    assert.match(imageRefs?.[0] ?? "", /^sha256:[0-9a-f]{64}$/);
  });

  test("a missing volume image keeps only its own container waiting, like a missing container image", async (t) => {
    const { pods, cluster } = lab;
    if (cluster.provider !== "cri") return t.skip("the pod is held");
    const reference = "registry.k8s.io/e2e-test-images/no-such-image:1";
    await pods.create("absent", {
      volumes: [{ name: "gone", image: { reference } }],
      containers: [{ volumeMounts: [{ name: "gone", mountPath: "/gone" }] }, { name: "other" }],
    });
    const pod = await pods.until(
      "absent",
      "the pull to be backed off, and the other container to run",
      (one) =>
        statusOf(one)?.state?.waiting?.reason === "ImagePullBackOff" &&
        statusOf(one, "other")?.state?.running !== undefined,
    );
    assert.match(
      statusOf(pod)?.state?.waiting?.message ?? "",
      /^Back-off pulling image ".*no-such-image:1": ErrImagePull: /,
    );
    await pods.event("absent", "Failed", "Error: ErrImagePull");
  });

  test("holds a pod with an image volume on the Docker Engine", async (t) => {
    const { pods, cluster } = lab;
    if (!cluster.provider.includes("docker")) return t.skip("the runtime is to say");
    await pods.create("held", { volumes, containers: [{ volumeMounts: [{ name: "tools", mountPath: "/tools" }] }] });
    await pods.event(
      "held",
      "UnsupportedField",
      /spec\.volumes\[0\]\.image \(image volumes are not supported with the Docker/,
    );
  });
});
