import assert from "node:assert/strict";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { test } from "node:test";
import { once } from "node:events";
import { ContainerState, PodSandboxState } from "../../../src/gen/cri.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { createVerbosity } from "../../../src/lib/verbosity.ts";
import type { PodStatus } from "../../../src/objects.ts";
import type { LogOptions, LogSource } from "../../../src/pipeline.ts";
import { fakeTracer } from "../../fakes/tracer.ts";
import { type TestPod, aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { type World, adminToken, ask, runtimeOf, start } from "./harness.ts";

const pod = aPod(
  { containers: [aContainer("c")], initContainers: [aContainer("init")] },
  { name: "p", namespace: "ns", uid: "uid-1" },
);
const terminated = (containerID: string) => ({ exitCode: 1, containerID });

async function answer(world: World, path: string, method = "GET"): Promise<[number, string]> {
  await using server = await start(world);
  const { status, body } = await ask(server, path, { method });
  return [status, body];
}

test("healthz: responds ok, with details on failure or on request, without excluded checks", async () => {
  const sick = { deps: { syncLoop: () => "sync Loop took longer than expected" } };
  assert.deepEqual(await answer({}, "/healthz"), [200, "ok"]);
  for (const name of ["syncloop", "device-plugin"]) assert.deepEqual(await answer({}, `/healthz/${name}`), [200, "ok"]);
  assert.deepEqual(await answer({}, "/healthz?verbose"), [
    200,
    "[+]ping ok\n[+]log ok\n[+]syncloop ok\n[+]device-plugin ok\nhealthz check passed\n",
  ]);
  assert.deepEqual(await answer(sick, "/healthz"), [
    500,
    "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\n[+]device-plugin ok\nhealthz check failed\n",
  ]);
  assert.deepEqual(await answer(sick, "/healthz/syncloop"), [
    500,
    "internal server error: sync Loop took longer than expected\n",
  ]);
  assert.deepEqual(await answer(sick, "/healthz?exclude=syncloop"), [200, "ok"]);
  assert.deepEqual(await answer({}, "/healthz?verbose&exclude=ping&exclude=x"), [
    200,
    '[+]ping excluded: ok\n[+]log ok\n[+]syncloop ok\n[+]device-plugin ok\nwarn: some health checks cannot be excluded: no matches for "x"\nhealthz check passed\n',
  ]);
  assert.equal((await answer({}, "/healthz/none"))[0], 404);
});

test("pods: returns the desired pods with the node's current statuses", async () => {
  const other = aPod({}, { name: "q", uid: "uid-2" });
  const world = {
    pods: [pod, { ...other, status: { phase: "Pending" } }],
    statuses: new Map([["uid-1", { phase: "Running" }]]),
  };
  const [status, body] = await answer(world, "/pods");
  assert.equal(status, 200);
  const list = JSON.parse(body) as {
    kind: string;
    apiVersion: string;
    items: { metadata: { name: string }; status: unknown }[];
  };
  assert.deepEqual([list.kind, list.apiVersion], ["PodList", "v1"]);
  assert.deepEqual(
    list.items.map((item) => [item.metadata.name, item.status]),
    [
      ["p", { phase: "Running" }],
      ["q", { phase: "Pending" }],
    ],
  );
});

test("runningpods: returns names and images of running containers", async () => {
  const [up, down] = [aContainer("up"), aContainer("down")];
  const image = { image: "busybox:1" } as never;
  const seen = observe(
    [aSandbox()],
    [
      aStatus(up, ContainerState.CONTAINER_RUNNING, { image }),
      aStatus(down, ContainerState.CONTAINER_EXITED, { image }),
    ],
  );
  const gone = observe(
    [aSandbox({ state: PodSandboxState.SANDBOX_NOTREADY })],
    [aStatus(down, ContainerState.CONTAINER_EXITED)],
  );
  const world = { deps: { podCache: { get: () => undefined, list: () => [seen, gone] } } };
  const [, body] = await answer(world, "/runningpods/");
  assert.deepEqual(JSON.parse(body).items, [
    {
      metadata: { name: "p", namespace: "default", uid: "uid-1" },
      spec: { containers: [{ name: "up", image: "busybox:1", resources: {} }] },
      status: {},
    },
  ]);
});

test("configz: returns the complete configuration", async () => {
  const configz = () => ({ kind: "KubeletConfiguration", port: 10250, staticPodURLHeader: { "X-Key": ["secret"] } });
  const [, body] = await answer({ deps: { configz } }, "/configz");
  assert.deepEqual(JSON.parse(body), {
    kubeletconfig: { kind: "KubeletConfiguration", port: 10250, staticPodURLHeader: { "X-Key": ["secret"] } },
  });
});

test("sets the log verbosity by PUT, with the kubelet's responses", async () => {
  const verbosity = createVerbosity(0);
  await using server = await start({ deps: { verbosity } });
  const put = async (body: string) => {
    const { status, body: text, headers } = await ask(server, "/debug/flags/v", { method: "PUT" }, body);
    assert.equal(headers["content-type"], "text/plain");
    return [status, text, verbosity.current()];
  };
  assert.deepEqual(await put("5"), [200, "successfully set klog.logging.verbosity to 5\n", 5]);
  assert.match(server.logged(), /"verbosity":5,"msg":"log verbosity has been set"/);
  const invalid = (text: string) => [400, `strconv.ParseUint: parsing ${text}: invalid syntax\n`, 5];
  assert.deepEqual(await put(""), invalid('""'));
  assert.deepEqual(await put("-1"), invalid('"-1"'));
  assert.deepEqual(await put('2\n"'), invalid('"2\\n\\""'));
  assert.deepEqual(await put("4294967296"), [400, 'strconv.ParseUint: parsing "4294967296": value out of range\n', 5]);
  const parsed = 'strconv.ParseInt: parsing "2147483648": value out of range';
  assert.deepEqual(await put("2147483648"), [400, `failed set klog.logging.verbosity 2147483648: ${parsed}\n`, 5]);
  assert.deepEqual((await put("1".repeat(2000)))[0], 413);
  assert.deepEqual(await answer({ deps: { verbosity } }, "/debug/flags/v"), [406, "unsupported http method\n"]);
  const disabled = { config: { enableDebugFlagsHandler: false }, deps: { verbosity } };
  assert.deepEqual(await answer(disabled, "/debug/flags/v", "PUT"), [405, "flags endpoint is disabled.\n"]);
  const asked: string[] = [];
  const allowed = (_user: unknown, verb: string, subresource: string) => {
    asked.push(`${verb} ${subresource}`);
    return Promise.resolve(false);
  };
  const refused = await answer({ deps: { verbosity, authorizer: { allowed } } }, "/debug/flags/v", "PUT");
  assert.equal(refused[0], 403);
  assert.deepEqual(asked, ["update proxy"]);
});

test("traces an authorized request as a child of the caller's span, without the query", async () => {
  const tracer = fakeTracer();
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  await using server = await start({ pods: [pod], deps: { tracer } });
  const asking = (authorization: string) => ({ method: "POST", headers: { authorization, traceparent } });
  await ask(server, "/run/ns/p/c?cmd=secret", asking("Bearer wrong"));
  assert.equal(tracer.spans.length, 0);
  await ask(server, "/run/ns/p/c?cmd=secret", asking(`Bearer ${adminToken}`));
  const [span] = tracer.spans;
  const route = "/run/{podNamespace}/{podID}/{containerName}";
  const expected = { method: "POST", route, path: "/run/ns/p/c" };
  const { attributes = {} } = span ?? {};
  assert.deepEqual([span?.name, span?.kind, span?.added], [route, "server", { "http.response.status_code": 500 }]);
  assert.deepEqual(
    [attributes["http.request.method"], attributes["http.route"], attributes["url.path"]],
    Object.values(expected),
  );
  assert.equal(typeof span?.parent === "object" && span.parent["traceparent"], traceparent);
  assert.equal(span?.failed, "Error: status 500");
  assert.equal(JSON.stringify(span).includes("secret"), false);
});

/** A server whose log reader writes the options that it gets. */
function logging(status: PodStatus | undefined): World {
  return {
    pods: [pod],
    statuses: status ? new Map([["uid-1", status]]) : new Map(),
    deps: {
      runtime: runtimeOf({
        containerStatus: (id) => Promise.resolve({ status: { logPath: `/var/log/pods/${id}` }, info: {} } as never),
      }),
      logs: {
        read(source: LogSource, options: LogOptions, out) {
          out.write(JSON.stringify({ ...source, ...options }));
          return Promise.resolve();
        },
      },
    },
  };
}

const runningStatus = {
  containerStatuses: [
    {
      name: "c",
      state: { running: {} },
      containerID: "containerd://now",
      lastState: { terminated: terminated("containerd://before") },
    },
  ],
} as unknown as PodStatus;

test("containerLogs: passes options to the reader, with the running or the previous container", async () => {
  const [status, body] = await answer(
    logging(runningStatus),
    "/containerLogs/ns/p/c?follow=true&timestamps=1&tailLines=5&limitBytes=9&sinceTime=2026-01-01T00:00:00Z",
  );
  assert.equal(status, 200);
  assert.deepEqual(JSON.parse(body), {
    containerId: "now",
    logPath: "/var/log/pods/now",
    follow: true,
    timestamps: true,
    previous: false,
    stream: "All",
    tailLines: 5,
    limitBytes: 9,
    since: Date.UTC(2026, 0, 1),
  });
  const previous = JSON.parse((await answer(logging(runningStatus), "/containerLogs/ns/p/c?previous=true&tail=7"))[1]);
  assert.deepEqual([previous.containerId, previous.tailLines, previous.follow], ["before", 7, false]);
  const all = JSON.parse(
    (await answer(logging(runningStatus), "/containerLogs/ns/p/c?tail=all&tailLines=3&sinceSeconds=60"))[1],
  );
  assert.equal(all.tailLines, undefined);
  assert.ok(Math.abs(Date.now() - 60_000 - all.since) < 30_000);
});

test("containerLogs: sinceSeconds uses the target's clock, which stamps the lines", async () => {
  for (const offsetMs of [3_600_000, -3_600_000]) {
    const world = logging(runningStatus);
    const deps = { ...world.deps, targetClock: { now: () => 1_000_000_000 + offsetMs } };
    const [, body] = await answer({ ...world, deps }, "/containerLogs/ns/p/c?sinceSeconds=60");
    assert.equal(JSON.parse(body).since, 1_000_000_000 + offsetMs - 60_000);
  }
});

test("containerLogs: selects the container's log or explains why there is none", async () => {
  const last = { lastState: { terminated: terminated("containerd://last") } };
  const cases: readonly (readonly [object, string, number, string | RegExp])[] = [
    [{ state: { terminated: terminated("containerd://dead") } }, "", 200, /"containerId":"dead"/],
    [{ state: { terminated: terminated("") }, ...last }, "", 200, /"containerId":"last"/],
    [{ state: { terminated: terminated("") } }, "", 400, 'container "c" in pod "p" is terminated'],
    [{ state: { waiting: { reason: "CrashLoopBackOff" } }, ...last }, "", 200, /"containerId":"last"/],
    [
      { state: { waiting: { reason: "ContainerCreating" } } },
      "",
      400,
      'container "c" in pod "p" is waiting to start: ContainerCreating',
    ],
    [
      { state: { waiting: { reason: "ErrImagePull" } } },
      "",
      400,
      `container "c" in pod "p" is waiting to start: image can't be pulled`,
    ],
    [
      { state: { waiting: { reason: "ImagePullBackOff" } } },
      "",
      400,
      'container "c" in pod "p" is waiting to start: trying and failing to pull image',
    ],
    [{ state: {} }, "", 400, 'container "c" in pod "p" is waiting to start - no logs yet'],
    [{ state: { running: {} } }, "?previous=true", 400, 'previous terminated container "c" in pod "p" not found'],
    [{ name: "other" }, "", 400, 'container "c" in pod "p" is not available'],
  ];
  for (const [state, query, status, text] of cases) {
    const world = logging({ containerStatuses: [{ name: "c", ...state }] } as unknown as PodStatus);
    const [code, body] = await answer(world, `/containerLogs/ns/p/c${query}`);
    assert.equal(code, status, body);
    if (typeof text === "string") assert.equal(body, text);
    else assert.match(body, text);
  }
});

test("responds to log and exec requests for a placeholder with the placeholder's message", async () => {
  const status = { phase: "Running", reason: "NotRunByGraftlet" };
  const text = /^400 pod "p" is a placeholder: this pod does not run: [^\n]*$/;
  for (const world of [logging(status), { pods: [{ ...pod, status }] }]) {
    for (const [path, method] of [
      ["/containerLogs/ns/p/c", "GET"],
      ["/run/ns/p/c?cmd=id", "POST"],
      ["/exec/ns/p/c?command=id&output=1", "POST"],
      ["/attach/ns/p/c?output=1", "POST"],
      ["/portForward/ns/p?port=80", "POST"],
    ] as const) {
      assert.match((await answer(world, path, method)).join(" "), text, path);
    }
  }
});

test("containerLogs: refuses invalid requests", async () => {
  const world = logging(runningStatus);
  const undecodable = '{"message": "Unable to decode query."}';
  const invalid = '{"message": "Invalid request."}';
  const cases = [
    ["p/c?tailLines=x", 400, undecodable],
    ["p/c?tailLines=99999999999999999999", 400, undecodable],
    ["p/c?sinceTime=yesterday", 400, undecodable],
    ["p/c?tailLines=-1", 422, invalid],
    ["p/c?limitBytes=0", 422, invalid],
    ["p/c?sinceSeconds=0", 422, invalid],
    ["p/c?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", 422, invalid],
    ["p/c?stream=Neither", 422, invalid],
    ["q/c", 404, 'pod "q" does not exist'],
    ["p/d", 404, 'container "d" not found in pod "p"'],
    ["p/init", 400, 'container "init" in pod "p" is not available'],
    [
      "p/c?stream=Stdout",
      400,
      'unable to return the given log stream: "Stdout". Please enable PodLogsQuerySplitStreams feature gate in kubelet',
    ],
  ] as const;
  for (const [rest, status, text] of cases)
    assert.deepEqual(await answer(world, `/containerLogs/ns/${rest}`), [status, text], rest);
  const split = JSON.parse(
    (await answer({ ...world, config: { splitLogStreams: true } }, "/containerLogs/ns/p/c?stream=Stdout"))[1],
  );
  assert.equal(split.stream, "Stdout");
});

test("waits for a pod that is not known yet, and responds 503 on a timeout", async () => {
  const { promise: podsKnown, resolve } = Promise.withResolvers<void>();
  const pods: TestPod[] = [];
  const clock = { ...systemClock(), within: (_ms: number, signal?: AbortSignal) => systemClock().within(300, signal) };
  await using server = await start({
    ...logging(runningStatus),
    pods,
    deps: { ...logging(runningStatus).deps, podsKnown, clock },
  });
  const logs = (name: string) => ask(server, `/containerLogs/ns/${name}/c`);
  const early = await logs("p");
  assert.deepEqual([early.status, /does not know its pods yet/.test(early.body)], [503, true]);
  const asked = [logs("p"), logs("q")];
  pods.push(pod);
  resolve();
  const [p, q] = await Promise.all(asked);
  assert.deepEqual([p?.status, q?.status, q?.body], [200, 404, 'pod "q" does not exist']);
});

test("containerLogs: reports an error after the first byte in the stream", async () => {
  const world = logging(runningStatus);
  const noStatus = { ...world, deps: { ...world.deps, runtime: runtimeOf({}) } };
  assert.deepEqual(await answer(noStatus, "/containerLogs/ns/p/c"), [
    200,
    "unable to retrieve container logs for containerd://now",
  ]);
  const logs = {
    read(_source: LogSource, _options: LogOptions, out: NodeJS.WritableStream) {
      out.write("line\n");
      return Promise.reject(new Error("failed to open log file"));
    },
  };
  assert.deepEqual(await answer({ ...world, deps: { ...world.deps, logs } }, "/containerLogs/ns/p/c"), [
    200,
    "line\nfailed to open log file",
  ]);
});

test("containerLogs: connects a follower before the first line, and stops reading when it disconnects", async () => {
  const world = logging(runningStatus);
  const over = Promise.withResolvers<void>();
  const logs = {
    read: (_source: LogSource, _options: LogOptions, _out: unknown, signal: AbortSignal) =>
      new Promise<void>((_resolve, reject) => {
        signal.addEventListener("abort", () => {
          over.resolve();
          reject(new Error("called off"));
        });
      }),
  };
  await using server = await start({ ...world, deps: { ...world.deps, logs } });
  const sent = request({
    host: "127.0.0.1",
    port: server.port,
    path: "/containerLogs/ns/p/c?follow=true",
    rejectUnauthorized: false,
    agent: false,
    headers: { authorization: `Bearer ${adminToken}` },
  });
  sent.on("error", () => {});
  sent.end();
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  assert.equal(response.statusCode, 200);
  assert.equal(response.headers["transfer-encoding"], "chunked");
  response.on("error", () => {});
  response.destroy();
  await over.promise;
});
