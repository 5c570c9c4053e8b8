import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { certificatesIn } from "../../harness/certificates.ts";
import type { Lab } from "../../harness/lab.ts";
import { addresses } from "../../harness/namespaces.ts";
import { type Callers, log, webSocket } from "./callers.ts";

/** Who gets in. */
export function authenticationTests(lab: () => Lab, callers: () => Callers): void {
  describe("authentication at the kubelet API", { concurrency: 4 }, () => {
    test("rejects requests without credentials", async () => {
      for (const path of ["/pods", "/healthz", "/no/such/path", log])
        assert.deepEqual(await callers().ask(path), { status: 401, body: "Unauthorized" });
      assert.deepEqual(await callers().ask("/exec/default/target/main?command=id&output=1", { method: "POST" }), {
        status: 401,
        body: "Unauthorized",
      });
      assert.deepEqual(await callers().ask("/exec/default/target/main?command=id&output=1", { headers: webSocket }), {
        status: 401,
        body: "Unauthorized",
      });
    });

    test("accepts client certificates that the cluster's CA issued for clients", async () => {
      const { frontProxyCa } = certificatesIn(lab().cluster.layout.pki);
      assert.equal((await callers().ask("/healthz", await callers().withCertificate("reader"))).status, 200);
      assert.deepEqual(
        await callers().ask("/healthz", await callers().withCertificate("reader", { authority: frontProxyCa })),
        {
          status: 401,
          body: "Unauthorized",
        },
      );
      assert.deepEqual(
        await callers().ask("/healthz", await callers().withCertificate("reader", { usage: "serverAuth" })),
        {
          status: 401,
          body: "Unauthorized",
        },
      );
    });

    test("accepts tokens that the API server knows, for its own audience", async () => {
      assert.deepEqual(await callers().ask("/healthz", callers().account("healthz")), { status: 200, body: "ok" });
      assert.deepEqual(await callers().ask("/healthz", { token: "made.up.token" }), {
        status: 401,
        body: "Unauthorized",
      });
      const elsewhere = (
        await lab().cluster.mustKubectl(["create", "token", "healthz", "--audience=elsewhere"])
      ).trim();
      assert.deepEqual(await callers().ask("/healthz", { token: elsewhere }), { status: 401, body: "Unauthorized" });
    });

    test("soon rejects tokens of a deleted account", async () => {
      const { cluster } = lab();
      await cluster.mustKubectl(["create", "serviceaccount", "leaving"]);
      const token = (await cluster.mustKubectl(["create", "token", "leaving"])).trim();
      await cluster.mustKubectl(["delete", "serviceaccount", "leaving"]);
      await cluster.waitFor(
        "the API server to refuse the token",
        async () =>
          (
            await cluster.kubectl([
              "get",
              "--raw=/api",
              `--token=${token}`,
              "--kubeconfig=/dev/null",
              `--server=https://${addresses.node}:${addresses.apiServerPort}`,
              "--insecure-skip-tls-verify",
            ])
          ).code !== 0,
      );
      assert.deepEqual(await callers().ask("/healthz", { token }), { status: 401, body: "Unauthorized" });
    });
  });
}
