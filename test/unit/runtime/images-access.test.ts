import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Image } from "../../../src/gen/cri.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { ImageCredentialSource } from "../../../src/runtime/images/keyring.ts";
import { createPullManager, type PullCheck } from "../../../src/runtime/images/pull-manager.ts";
import { createPullRecords, type PullSecret } from "../../../src/runtime/images/pull-records.ts";
import { type VerificationSettings, verificationBy } from "../../../src/runtime/images/verification-policy.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";

const image = "registry.test:5000/team/app:v1";
const id = "sha256:one";
const pulled = "/root/image_manager/pulled";
const pulling = "/root/image_manager/pulling";

const secret = (namespace: string, more: Partial<PullSecret> = {}): PullSecret => ({
  uid: `uid-${namespace}`,
  namespace,
  name: "login",
  credentialHash: `hash-${namespace}`,
  ...more,
});

/** A node's root directory, with a new agent for each call, one after another. */
function rig(policy: VerificationSettings["policy"] = "NeverVerifyPreloadedImages", allowlist: readonly string[] = []) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const checks: PullCheck[] = [];
  const images: Image[] = [];
  const agent = () =>
    createPullManager({
      runtime: { listImages: async () => images },
      records: createPullRecords(host.fs, "/root"),
      needsVerification: verificationBy({ policy, allowlist }),
      measures: { checked: (result) => void checks.push(result) },
      clock,
      log: silentLog(),
    });
  const manager = agent();
  const mustPull = (by = manager, ...secrets: readonly PullSecret[]) =>
    by.mustPull(image, id, async () => secrets.map((one) => ({ secret: one })));
  const pull = async (by = manager, used?: PullSecret) =>
    (await by.begin(image)).succeeded(id, used && { secret: used });
  const filesIn = async (directory: string) =>
    (await host.fs.list(directory)).map(({ name }) => `${directory}/${name}`);
  const recordOf = async () => {
    const [file = ""] = await filesIn(pulled);
    return JSON.parse((await host.fs.readFile(file)).toString()) as Record<string, unknown>;
  };
  return { clock, host, checks, images, agent, manager, mustPull, pull, filesIn, recordOf };
}

describe("access to a present image", () => {
  it("access to a present image is open to all pods if it was not pulled for a pod, or was pulled anonymously", async () => {
    const { mustPull, pull, checks } = rig();
    assert.equal(await mustPull(), false);
    await pull();
    assert.equal(await mustPull(), false);
    assert.deepEqual(checks, ["credentialPolicyAllowed", "credentialRecordFound"]);
  });

  it("access to a present image is granted to pods with the same secret, the same credentials, or the secret's next credentials", async () => {
    const { manager, mustPull, pull, recordOf } = rig();
    await pull(manager, secret("a"));
    assert.equal(await mustPull(manager, secret("a")), false);
    assert.equal(await mustPull(), true, "without a secret");
    assert.equal(await mustPull(manager, secret("b")), true, "with another one");
    assert.equal(await mustPull(manager, secret("b", { credentialHash: "" })), true);
    assert.equal(await mustPull(manager, secret("b", { credentialHash: "hash-a" })), false, "a copy");
    assert.equal(await mustPull(manager, secret("a", { credentialHash: "next" })), false, "changed");
    assert.equal(await mustPull(manager, secret("c", { credentialHash: "next" })), false, "a copy of the change");
    const known = { "registry.test:5000/team/app": { kubernetesSecrets: ["a", "b", "c"].map((one) => secret(one)) } };
    for (const [index, credentialHash] of ["next", "hash-a", "next"].entries())
      Object.assign(known["registry.test:5000/team/app"].kubernetesSecrets[index] ?? {}, { credentialHash });
    assert.deepEqual((await recordOf())["credentialMapping"], known);
  });

  it("access to a present image is granted to pods of the service account that a plugin had credentials for", async () => {
    const { manager, agent, recordOf } = rig();
    const account = { uid: "uid-a", namespace: "a", name: "builder" };
    await (await manager.begin(image)).succeeded(id, { account });
    const known = { "registry.test:5000/team/app": { kubernetesServiceAccounts: [account] } };
    assert.deepEqual((await recordOf())["credentialMapping"], known);
    for (const by of [manager, agent()]) {
      const ask = (...sources: readonly ImageCredentialSource[]) => by.mustPull(image, id, async () => sources);
      assert.equal(await ask({ account }), false);
      assert.equal(await ask({ account: { ...account, uid: "next" } }), true, "a service account of the same name");
      assert.equal(await ask({ secret: secret("a") }, undefined), true, "another's secret, and the node's credentials");
    }
    await (await manager.begin(image)).succeeded(id, { secret: secret("b") });
    const both = { kubernetesSecrets: [secret("b")], kubernetesServiceAccounts: [account] };
    assert.deepEqual((await recordOf())["credentialMapping"], { "registry.test:5000/team/app": both });
    await (await manager.begin(image)).succeeded(id, undefined);
    const all = { nodePodsAccessible: true };
    assert.deepEqual((await recordOf())["credentialMapping"], { "registry.test:5000/team/app": all });
  });

  it("access to a present image is recorded under the name that was pulled", async () => {
    const { manager, pull } = rig();
    await pull(manager, secret("a"));
    assert.equal(
      await manager.mustPull("registry.test:5000/team/app:v2", id, async () => [{ secret: secret("a") }]),
      false,
    );
    assert.equal(await manager.mustPull("mirror.test/app:v1", id, async () => [{ secret: secret("a") }]), true);
  });

  it("access to a present image is verified according to the policy", async () => {
    for (const [policy, allowlist, whenPreloaded, whenPulled] of [
      ["NeverVerify", [], false, false],
      ["NeverVerifyPreloadedImages", [], false, true],
      ["NeverVerifyAllowlistedImages", ["registry.test:5000/team/app"], false, false],
      ["NeverVerifyAllowlistedImages", ["registry.test:5000/team/*"], false, false],
      ["NeverVerifyAllowlistedImages", ["registry.test:5000/team"], true, true],
      ["AlwaysVerify", [], true, true],
    ] as const) {
      const { manager, mustPull, pull } = rig(policy, allowlist);
      assert.equal(await mustPull(), whenPreloaded, `${policy} ${allowlist.join()}, preloaded`);
      await pull(manager, secret("a"));
      assert.equal(await mustPull(), whenPulled, `${policy} ${allowlist.join()}, pulled`);
    }
  });
});

describe("pull records", () => {
  it("pull records are in the kubelet's format and survive a restart", async () => {
    const { manager, agent, mustPull, pull, filesIn, recordOf, host } = rig();
    await pull(manager, secret("a"));
    assert.deepEqual(await filesIn(pulling), [], "a finished pull has no intent record");
    assert.deepEqual(await recordOf(), {
      kind: "ImagePulledRecord",
      apiVersion: "kubelet.config.k8s.io/v1beta1",
      lastUpdatedTime: "2026-01-01T00:00:00Z",
      imageRef: id,
      credentialMapping: { "registry.test:5000/team/app": { kubernetesSecrets: [secret("a")] } },
    });
    const [file = ""] = await filesIn(pulled);
    assert.match(file, /\/sha256-[0-9a-f]{64}$/);
    assert.equal((await host.fs.stat(file)).mode & 0o777, 0o600);
    const next = agent();
    assert.equal(await mustPull(next, secret("a")), false);
    assert.equal(await mustPull(next), true);
  });

  it("pull records that are corrupt cause verification, and are rewritten", async () => {
    const { manager, agent, mustPull, pull, filesIn, host, checks } = rig();
    await pull(manager, secret("a"));
    const [file = ""] = await filesIn(pulled);
    await host.fs.apply([{ kind: "write", path: file, data: '{"kind":"Image' }]);
    const next = agent();
    assert.equal(await mustPull(next, secret("a")), true);
    assert.deepEqual(checks, ["error"]);
    await pull(next, secret("a"));
    assert.equal(await mustPull(next, secret("a")), false);
  });

  it("pull records of an interrupted pull cause verification", async () => {
    const { manager, agent, images, mustPull, filesIn } = rig();
    await manager.begin(image);
    assert.equal((await filesIn(pulling)).length, 1);
    assert.equal(await mustPull(manager, secret("a")), true, "under way");
    images.push(Image.fromPartial({ id, repoTags: [image] }));
    const next = agent();
    assert.equal(await mustPull(next, secret("a")), true);
    assert.deepEqual([(await filesIn(pulling)).length, (await filesIn(pulled)).length], [0, 1]);
  });

  it("pull records of a pull that ended while the target was unreachable are removed with the next pull of that name", async () => {
    const { manager, host, pull, filesIn, mustPull } = rig();
    const begun = await manager.begin(image);
    const apply = host.fs.apply.bind(host.fs);
    host.fs.apply = () => Promise.reject(new Error("out of reach"));
    await begun.failed();
    host.fs.apply = apply;
    assert.equal((await filesIn(pulling)).length, 1);
    assert.equal(await mustPull(manager, secret("a")), true, "the pod's credentials are verified");
    await pull(manager, secret("a"));
    assert.deepEqual(await filesIn(pulling), []);
    assert.equal(await mustPull(manager, secret("a")), false);
  });

  it("pull records of concurrent pulls are all kept", async () => {
    const { manager, mustPull } = rig();
    const [one, other] = await Promise.all([manager.begin(image), manager.begin(image)]);
    await Promise.all([one.succeeded(id, { secret: secret("a") }), other.succeeded(id, { secret: secret("b") })]);
    for (const namespace of ["a", "b"]) assert.equal(await mustPull(manager, secret(namespace)), false);
  });

  it("pull records are removed with their images, except those pulled since", async () => {
    const { manager, clock, mustPull, pull, filesIn } = rig();
    await pull(manager, secret("a"));
    await manager.prune([], clock.now());
    assert.equal((await filesIn(pulled)).length, 1, "pulled in the same second");
    await clock.advance(2_000);
    await manager.prune([id], clock.now());
    assert.equal((await filesIn(pulled)).length, 1, "still there");
    await manager.prune([], clock.now());
    assert.deepEqual(await filesIn(pulled), []);
    assert.equal(await mustPull(), false, "an image that reappears was not pulled for a pod");
  });
});
