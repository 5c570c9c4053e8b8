import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError } from "../../../src/api/api-error.ts";
import { createTrustBundles } from "../../../src/api/trust-bundles.ts";
import { pemBlocks, pemCertificates } from "../../../src/lib/pem.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { fakeClient, silent, type WatchFeed, watchFeed } from "./fake-client.ts";
import { pod } from "./pods.ts";

const pem = (...names: readonly string[]) => pemCertificates(names.map((name) => Buffer.from(name)));
const textsIn = (bundle: string) => pemBlocks(bundle).map(String).sort();
const bundle = (name: string, trustBundle: string, signerName?: string, labels?: Record<string, string>) => ({
  metadata: { name, uid: name, resourceVersion: "1", ...(labels && { labels }) },
  spec: { trustBundle, ...(signerName && { signerName }) },
});
const user = (name: string) =>
  pod(name, { volumes: [{ name: "v", projected: { sources: [{ clusterTrustBundle: { name: "b", path: "ca" } }] } }] });

/** A server with these bundles, at these versions of the API group. */
function start({ items = [] as object[], versions = ["v1beta1"], enabled = true } = {}) {
  const clock = fakeClock();
  const stop = new AbortController();
  const feeds: WatchFeed[] = [];
  const open = { watches: 0 };
  const client = fakeClient((call, signal) => {
    if (call.verb === "get") {
      if (!versions.some((version) => call.path.endsWith(`/${version}`))) throw apiError(404, "");
      return { resources: [{ name: "clustertrustbundles" }] };
    }
    if (call.verb === "list") return { metadata: { resourceVersion: "5" }, items };
    const feed = watchFeed(signal);
    feeds.push(feed);
    open.watches += 1;
    signal.addEventListener("abort", () => (open.watches -= 1));
    return feed;
  });
  const bundles = createTrustBundles({ client, enabled, clock, log: silent });
  const running = bundles.run(stop.signal);
  const changed: string[] = [];
  bundles.onChange((uid) => changed.push(uid));
  bundles.register(user("a"));
  return {
    clock,
    client,
    bundles,
    changed,
    feeds,
    open,
    read: (selection: Parameters<typeof bundles.trustAnchors>[0]) => bundles.trustAnchors(selection, never),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await clock.advance(60_000);
      await running;
    },
  };
}

test("a bundle read by name contains each certificate once, without the text between certificates", async () => {
  const messy = `# comment\n${pem("one")}between\n${pem("two", "one")}`;
  await using t = start({ items: [bundle("b", messy)] });
  const read = await t.read({ name: "b" });
  assert.deepEqual(textsIn(read), ["one", "two"]);
  assert.match(read, /^(-----BEGIN CERTIFICATE-----\n[\w+/=]+\n-----END CERTIFICATE-----\n){2}$/);
});

test("selects a signer's bundles by labels: none without a selector, all with an empty selector", async () => {
  await using t = start({
    items: [
      bundle("a", pem("a"), "s/x", { live: "yes" }),
      bundle("b", pem("b", "a"), "s/x"),
      bundle("c", pem("c"), "s/y", { live: "yes" }),
    ],
  });
  const signerName = "s/x";
  assert.deepEqual(textsIn(await t.read({ signerName, labelSelector: {} })), ["a", "b"]);
  assert.deepEqual(textsIn(await t.read({ signerName, labelSelector: { matchLabels: { live: "yes" } } })), ["a"]);
  const absent = { matchExpressions: [{ key: "live", operator: "DoesNotExist" }] };
  assert.deepEqual(textsIn(await t.read({ signerName, labelSelector: absent })), ["a", "b"]);
  await assert.rejects(t.read({ signerName }), {
    message: "combination of signerName and labelSelector matched zero ClusterTrustBundles",
  });
});

test("a missing bundle is an error unless it is optional", async () => {
  await using t = start();
  await assert.rejects(t.read({ name: "b" }), {
    message: 'while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "b" not found',
  });
  assert.equal(await t.read({ name: "b", optional: true }), "");
  assert.equal(await t.read({ signerName: "s/x", labelSelector: {}, optional: true }), "");
});

test("reads bundles with the alpha API if the API server serves no other version", async () => {
  await using t = start({ items: [bundle("b", pem("one"))], versions: ["v1alpha1"] });
  assert.deepEqual(textsIn(await t.read({ name: "b" })), ["one"]);
});

test("without the API or the feature gate, reads fail with the kubelet's message, and no watch is opened", async () => {
  for (const options of [{ versions: [] }, { enabled: false }]) {
    await using t = start(options);
    await assert.rejects(t.read({ name: "b" }), {
      message: "ClusterTrustBundle projection is not supported in static kubelet mode",
    });
    assert.equal(t.open.watches, 0);
  }
});

test("watches bundles while a pod uses them, and notifies those pods of changes", async () => {
  await using t = start({ items: [bundle("b", pem("one"))] });
  assert.equal(t.client.calls.length, 0);
  t.bundles.register(user("second"));
  await t.read({ name: "b" });
  await t.clock.advance(0);
  assert.deepEqual([t.open.watches, t.changed], [1, []]);
  t.feeds[0]?.send("MODIFIED", bundle("b", pem("two")));
  await t.clock.advance(0);
  assert.deepEqual(t.changed, [user("a").metadata.uid, user("second").metadata.uid]);
  assert.deepEqual(textsIn(await t.read({ name: "b" })), ["two"]);
  t.bundles.unregister(user("a").metadata.uid);
  assert.equal(t.open.watches, 1);
  t.bundles.unregister(user("second").metadata.uid);
  assert.equal(t.open.watches, 0);
});
