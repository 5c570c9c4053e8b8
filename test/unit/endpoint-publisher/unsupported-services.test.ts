import assert from "node:assert/strict";
import { test } from "node:test";
import { unsupportedServicesText } from "../../../src/endpoint-publisher/publisher.ts";
import type { Pod, Service } from "../../../src/objects.ts";
import { aPod } from "../../fakes/pods.ts";

const pod: Pod = {
  ...aPod({}, { labels: { app: "shop" } }),
  status: { phase: "Running", podIP: "10.88.0.5" },
};
const shop = (spec: Service["spec"] = {}, name = "shop"): Service => ({
  metadata: { name, namespace: "default", uid: name },
  spec: { clusterIP: "10.96.0.9", selector: { app: "shop" }, ports: [{ port: 80 }], ...spec },
});
const said = (...services: readonly Service[]) => unsupportedServicesText(services, [pod]) ?? "";

test("describes kinds of Services that cannot be forwarded, with the remedy", () => {
  const kinds: readonly (readonly [Service["spec"], RegExp])[] = [
    [
      { clusterIP: "None" },
      /through default\/shop: it is headless, and DNS records carry no ports; give it a clusterIP$/,
    ],
    [{ clusterIP: "fd00::9", clusterIPs: ["fd00::9"] }, /no IPv4 address; set ipFamilyPolicy: PreferDualStack$/],
    [{ internalTrafficPolicy: "Local" }, /: internalTrafficPolicy is Local; set Cluster$/],
    [{ type: "LoadBalancer", externalTrafficPolicy: "Local" }, /: externalTrafficPolicy is Local; set Cluster$/],
    [{ ports: [{ port: 80 }, { port: 53, protocol: "UDP" }] }, /its port 53 is UDP; only TCP is forwarded$/],
  ];
  for (const [spec, why] of kinds) assert.match(said(shop(spec)), why);
});

test("describes several Services in one sentence, in an order independent of the input", () => {
  const some = ["b", "a", "c"].map((name) => shop({ clusterIP: "None" }, name));
  assert.match(said(...some), /through default\/a: .*, and 2 more$/);
  assert.equal(said(...some), said(...some.toReversed()));
});

test("omits Services that can be forwarded or that select no pod on the node", () => {
  assert.equal(said(shop(), shop({ clusterIP: "10.96.0.9", clusterIPs: ["fd00::9", "10.96.0.9"] })), "");
  const headless = { clusterIP: "None" };
  assert.equal(said(shop({ ...headless, selector: { app: "other" } })), "");
  assert.equal(said({ ...shop(headless), metadata: { name: "shop", namespace: "elsewhere", uid: "s" } }), "");
  assert.equal(said(shop({ type: "ExternalName" })), "");
  assert.equal(unsupportedServicesText([shop(headless)], []), undefined);
});
