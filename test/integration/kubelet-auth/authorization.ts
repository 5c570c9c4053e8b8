import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { kubeletStatuses } from "../../harness/kubelet-api.ts";
import type { Lab } from "../../harness/lab.ts";
import { type Callers, log, subresources, webSocket } from "./callers.ts";

/** Who may do what. */
export function authorizationTests(lab: () => Lab, callers: () => Callers): void {
  describe("authorization at the kubelet API", { concurrency: 4 }, () => {
    test("reports which permission a caller lacks", async () => {
      assert.deepEqual(await callers().ask("/pods", await callers().withCertificate("stranger")), {
        status: 403,
        body: "Forbidden (user=stranger, verb=get, resource=nodes, subresource(s)=[pods proxy])\n",
      });
      const user = "system:serviceaccount:default:nothing";
      assert.deepEqual(await callers().ask("/metrics", callers().account("nothing")), {
        status: 403,
        body: `Forbidden (user=${user}, verb=get, resource=nodes, subresource(s)=[metrics])\n`,
      });
      assert.deepEqual(await callers().ask(log, callers().account("nothing")), {
        status: 403,
        body: `Forbidden (user=${user}, verb=get, resource=nodes, subresource(s)=[proxy])\n`,
      });
      assert.deepEqual(
        await callers().ask("/exec/default/target/main?command=id&output=1", {
          ...callers().account("proxy"),
          method: "POST",
        }),
        {
          status: 403,
          body: "Forbidden (user=system:serviceaccount:default:proxy, verb=create, resource=nodes, subresource(s)=[proxy])\n",
        },
      );
      assert.deepEqual(await callers().ask("/no/such/path", { ...callers().account("proxy"), method: "DELETE" }), {
        status: 403,
        body: "Forbidden (user=system:serviceaccount:default:proxy, verb=delete, resource=nodes, subresource(s)=[proxy])\n",
      });
      assert.equal(
        (
          await callers().ask("/pods", {
            ...callers().account("proxy"),
            method: "HEAD",
            headers: ["Connection: close"],
          })
        ).status,
        403,
      );
    });

    /** Who may ask for what: the subresources of nodes that open a path. */
    const doors: Readonly<Record<string, readonly (typeof subresources)[number][]>> = {
      "/healthz": ["healthz", "proxy"],
      "/healthz/ping": ["healthz", "proxy"],
      "/healthz/log": ["healthz", "proxy"],
      "/healthz/syncloop": ["healthz", "proxy"],
      "/pods": ["pods", "proxy"],
      "/pods/": ["pods", "proxy"],
      "/runningpods/": ["pods", "proxy"],
      "/configz": ["configz", "proxy"],
      "/flagz": ["configz"],
      "/statusz": ["statusz"],
      "/stats/summary": ["stats"],
      "/metrics": ["metrics"],
      "/metrics/cadvisor": ["metrics"],
      "/metrics/resource": ["metrics"],
      "/metrics/probes": ["metrics"],
      "/logs/": ["log"],
      "/logs/syslog": ["log"],
      "/checkpoint/default/target/main": ["checkpoint"],
      [log]: ["proxy"],
      "/exec/default/target/main": [],
      "/attach/default/target/main": [],
      "/portForward/default/target": [],
      "/run/default/target/main": [],
      "/debug/pprof/": ["proxy"],
      "/no/such/path": ["proxy"],
      "/": ["proxy"],
    };
    for (const account of ["nothing", ...subresources]) {
      test(`get on nodes/${account} allows only the paths of that subresource`, async () => {
        const statuses = await kubeletStatuses(lab().cluster, Object.keys(doors), callers().account(account));
        const open = Object.entries(statuses)
          .filter(([, status]) => status !== 403)
          .map(([path]) => path);
        assert.deepEqual(
          open,
          Object.keys(doors).filter((path) => doors[path]?.some((one) => one === account)),
          JSON.stringify(statuses),
        );
        assert.ok(
          !Object.values(statuses).some((status) => status === 401 || status >= 501 || status === 0),
          JSON.stringify(statuses),
        );
      });
    }

    test("get on proxy allows reads, create on proxy allows exec, also for a WebSocket's GET", async () => {
      const reader = await callers().withCertificate("reader");
      const runner = await callers().withCertificate("runner", { organization: "runners" });
      assert.deepEqual(await callers().ask(log, reader), { status: 200, body: "hello from the log\n" });
      assert.equal((await callers().ask(log, runner)).status, 403);
      assert.deepEqual(await callers().ask("/run/default/target/main?cmd=echo%20ran", { ...runner, method: "POST" }), {
        status: 200,
        body: "ran\n",
      });
      assert.equal(
        (await callers().ask("/run/default/target/main?cmd=echo%20ran", { ...reader, method: "POST" })).status,
        403,
      );
      const exec = "/exec/default/target/main?command=true&output=1";
      assert.equal((await callers().ask(exec, { ...runner, headers: webSocket })).status, 101);
      for (const path of [exec, exec.replace("exec", "attach"), "/portForward/default/target?port=80"])
        assert.deepEqual(await callers().ask(path, { ...reader, headers: webSocket }), {
          status: 403,
          body: "Forbidden (user=reader, verb=create, resource=nodes, subresource(s)=[proxy])\n",
        });
      assert.deepEqual(
        await callers().ask(exec, { ...(await callers().withCertificate("stranger")), headers: webSocket }),
        {
          status: 403,
          body: "Forbidden (user=stranger, verb=create, resource=nodes, subresource(s)=[proxy])\n",
        },
      );
      assert.equal((await callers().ask(exec, { ...callers().account("pods"), headers: webSocket })).status, 403);
    });
  });
}
