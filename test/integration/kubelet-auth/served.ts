import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { Lab } from "../../harness/lab.ts";
import { type Callers, log } from "./callers.ts";

/** What those who may get. */
export function servedTests(lab: () => Lab, callers: () => Callers): void {
  describe("endpoints of the kubelet API", { concurrency: 4 }, () => {
    test("endpoints serve health, pods, running pods and the configuration", async () => {
      for (const path of ["/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop", "/healthz/device-plugin"])
        assert.deepEqual(await callers().ask(path, callers().admin), { status: 200, body: "ok" });
      const list = async (path: string): Promise<PodList> =>
        JSON.parse((await callers().ask(path, callers().admin)).body) as PodList;
      const pods = await list("/pods");
      assert.deepEqual([pods.kind, pods.apiVersion], ["PodList", "v1"]);
      const [target] = pods.items;
      assert.deepEqual(
        [pods.items.length, target?.metadata.name, target?.spec.nodeName, target?.status.phase],
        [1, "target", lab().cluster.nodeName, "Running"],
      );
      assert.deepEqual((await list("/pods/")).items.length, 1);
      const running = await list("/runningpods/");
      assert.deepEqual(
        running.items.map(({ metadata, spec }) => [
          metadata.namespace,
          metadata.name,
          metadata.uid,
          spec.containers.map(({ name }) => name),
        ]),
        [["default", "target", target?.metadata.uid, ["main"]]],
      );
      const { kubeletconfig } = JSON.parse((await callers().ask("/configz", callers().admin)).body) as {
        kubeletconfig: Record<string, unknown>;
      };
      assert.deepEqual(
        [kubeletconfig["podLogsDir"], kubeletconfig["port"], kubeletconfig["cgroupRoot"]],
        [lab().cluster.layout.podLogs, 10250, lab().cluster.layout.cgroup],
      );
    });

    test("endpoints serve the flags and the status of the process, directly and through the API server", async () => {
      const { cluster } = lab();
      const byKubectl = (path: string) =>
        cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy${path}`]);
      assert.match(await byKubectl("/flagz"), /^\nkubelet flagz\nWarning: .*\n(?:.*\n)*config[:= ]+\/.+\n/);
      const accept = (kind: string) => ({ headers: [`Accept: application/json;as=${kind};g=config.k8s.io;v=v1beta1`] });
      const flagz = await callers().ask("/flagz", { ...callers().account("configz"), ...accept("Flagz") });
      const { flags } = JSON.parse(flagz.body) as { flags: Record<string, string> };
      assert.deepEqual([flags["hostname-override"], flags["max-pods"]], [cluster.nodeName, "110"]);
      assert.match(await byKubectl("/statusz"), /\nUp[:= ]+0 hr \d\d min \d\d sec\n/);
      const statusz = await callers().ask("/statusz", { ...callers().account("statusz"), ...accept("Statusz") });
      const { paths } = JSON.parse(statusz.body) as { paths: string[] };
      assert.deepEqual(paths, ["/configz", "/debug", "/flagz", "/healthz", "/metrics"]);
    });

    test("endpoints refuse requests with the kubelet's messages", async () => {
      const { status } = await callers().ask("/no/such/path", callers().admin);
      assert.equal(status, 404);
      assert.deepEqual(await callers().ask("/containerLogs/default/absent/main", callers().admin), {
        status: 404,
        body: 'pod "absent" does not exist',
      });
      assert.deepEqual(await callers().ask("/containerLogs/default/target/absent", callers().admin), {
        status: 404,
        body: 'container "absent" not found in pod "target"',
      });
      assert.deepEqual(await callers().ask(`${log}?tailLines=many`, callers().admin), {
        status: 400,
        body: '{"message": "Unable to decode query."}',
      });
      assert.deepEqual(await callers().ask(`${log}?limitBytes=0`, callers().admin), {
        status: 422,
        body: '{"message": "Invalid request."}',
      });
      assert.deepEqual(
        await callers().ask("/exec/default/target/main?command=id", { ...callers().admin, method: "POST" }),
        {
          status: 400,
          body: "you must specify at least 1 of stdin, stdout, stderr",
        },
      );
      assert.deepEqual(
        await callers().ask("/exec/default/absent/main?command=id&output=1", { ...callers().admin, method: "POST" }),
        {
          status: 404,
          body: "pod does not exist",
        },
      );
      assert.deepEqual(
        await callers().ask("/exec/default/target/absent?command=id&output=1", { ...callers().admin, method: "POST" }),
        {
          status: 500,
          body: 'container not found ("absent")',
        },
      );
    });

    test("endpoints never give access outside of the directory or pod that their path names", async () => {
      const outside = [
        "/containerLogs/default/target/..%2f..%2f..%2fetc",
        "/containerLogs/../../etc/passwd",
        "/containerLogs/default/%2e%2e/main",
        "/logs/../../etc/passwd",
        "/logs/..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/../etc/passwd",
        "/pods%00",
        "/%zz",
      ];
      for (const path of outside) {
        const { status, body } = await callers().ask(path, callers().admin);
        assert.ok(status === 404 || status === 400, `${path}: ${status}`);
        assert.doesNotMatch(body, /root:/);
      }
    });

    test("permission for one endpoint gives access to no other, however a path is spelled", async () => {
      for (const path of [
        "/healthz/../pods",
        "/healthz/..%2fpods",
        "/healthz/%2e%2e/pods",
        "/healthz//../pods",
        "/healthz/./../configz",
        "/healthz%2f..%2fpods",
        "//pods",
        "/healthz/../containerLogs/default/target/main",
      ]) {
        const { status, body } = await callers().ask(path, callers().account("healthz"));
        assert.ok(status === 404 || status === 403 || status === 400, `${path}: ${status}`);
        assert.doesNotMatch(body, /PodList|kubeletconfig|hello from/);
      }
    });

    test("endpoints let kubectl set the log verbosity", async () => {
      const { cluster, agent } = lab();
      const level = join(cluster.layout.dir, "verbosity");
      const set = async (value: string) => {
        writeFileSync(level, value);
        const path = `/api/v1/nodes/${cluster.nodeName}/proxy/debug/flags/v`;
        return cluster.mustKubectl(["replace", "--raw", path, "-f", level]);
      };
      const refusals = () => agent.log().match(/"area":"no-such-area",.*"refused kubelet API request"/g)?.length ?? 0;
      const ask = () => callers().ask("/no-such-area", callers().account("nothing"));
      assert.equal((await ask()).status, 403);
      assert.equal(refusals(), 0);
      assert.equal(await set("3"), "successfully set klog.logging.verbosity to 3\n");
      assert.equal((await ask()).status, 403);
      assert.equal(refusals(), 1);
      assert.equal(await set("0"), "successfully set klog.logging.verbosity to 0\n");
    });

    test("port 10248 answers ok on the loopback only", async () => {
      const { cluster } = lab();
      const curl = (url: string): ReturnType<typeof cluster.runAtAgent> =>
        cluster.runAtAgent([cluster.tools.path("curl"), "--silent", "--max-time", "10", url]);
      assert.deepEqual(await curl("http://127.0.0.1:10248/healthz"), { code: 0, stdout: "ok", stderr: "" });
      assert.equal((await curl("http://127.0.0.1:10248/pods")).stdout, "404 page not found\n");
      assert.equal((await curl(`http://${cluster.agentAddress}:10248/healthz`)).code, 7);
      assert.equal((await curl(`http://${cluster.agentAddress}:10255/pods`)).code, 7);
      assert.equal((await curl("http://127.0.0.1:10255/pods")).code, 7);
    });
  });
}

interface PodList {
  readonly kind: string;
  readonly apiVersion: string;
  readonly items: readonly {
    metadata: { name: string; namespace: string; uid: string };
    spec: { nodeName?: string; containers: { name: string }[] };
    status: { phase?: string };
  }[];
}
