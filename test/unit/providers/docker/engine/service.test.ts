import assert from "node:assert/strict";
import { test } from "node:test";
import { createCapabilities } from "../../../../../providers/docker/engine/capabilities.ts";
import { createPodNetwork } from "../../../../../providers/docker/network/pod-network.ts";
import { engineInfo } from "../../../../../providers/docker/client/engine-info.ts";
import type { DockerParts } from "../../../../../providers/docker/parts.ts";
import { createSandboxImage } from "../../../../../providers/docker/pause/image.ts";
import { dockerEngineService } from "../../../../../providers/docker/engine/service.ts";
import { CgroupDriver } from "../../../../../src/gen/cri.ts";
import { type EngineCall, fakeEngine } from "../engine.ts";
import { rawEngine } from "../raw-engine.ts";

const signal = () => AbortSignal.timeout(5000);

const info = {
  ID: "d1",
  ServerVersion: "20.10.24",
  CgroupDriver: "systemd",
  SecurityOptions: ["name=seccomp,profile=default"],
  MemoryLimit: true,
  CpuCfsQuota: false,
  Runtimes: { runc: {}, runsc: {} },
};

/** A daemon with the sandbox image that fails to start the containers for which `starts` returns false. */
function engineWith({
  starts = () => true,
  left = [],
  image = true,
  pullable = false,
  more = {},
}: {
  starts?: (hostConfig: Readonly<Record<string, unknown>>) => boolean;
  left?: readonly string[];
  image?: boolean;
  pullable?: boolean;
  more?: object;
} = {}) {
  let there = image;
  const created: Readonly<Record<string, unknown>>[] = [];
  const removed: string[] = [];
  const engine = fakeEngine(({ method, path, body }: EngineCall) => {
    if (path === "/info") return { status: 200, body: { ...info, ...more } };
    if (path === "/images/create") there ||= pullable;
    if (path.startsWith("/images/")) return there ? { status: 200, body: { Id: "sha256:1" } } : { status: 404 };
    if (path === "/containers/json") return { status: 200, body: left.map((Id) => ({ Id })) };
    const [, , id = ""] = path.split("/");
    if (path === "/containers/create") {
      created.push(hostConfigOf(body));
      return { status: 201, body: { Id: String(created.length - 1) } };
    }
    if (method === "DELETE") {
      removed.push(id);
      return { status: 204 };
    }
    return starts(created[Number(id)] ?? {}) ? { status: 204 } : { status: 500, body: { message: "not permitted" } };
  });
  return { engine, created, removed };
}

function hostConfigOf({ HostConfig }: EngineCall["body"]): Readonly<Record<string, unknown>> {
  return typeof HostConfig === "object" && HostConfig !== null ? { ...HostConfig } : {};
}

function serviceOf(parts: DockerParts) {
  const capabilities = createCapabilities(parts, createSandboxImage(parts));
  return { capabilities, ...dockerEngineService({ parts, capabilities, network: createPodNetwork(parts) }) };
}

test("reports handlers, cgroup driver and missing features from the daemon's info", async () => {
  const { engine } = engineWith();
  await using daemon = await engine;
  const { status, runtimeConfig, capabilities } = serviceOf(daemon.parts);
  const { runtimeHandlers } = await status(signal());
  assert.deepEqual(
    runtimeHandlers.map(({ name }) => name),
    ["", "runc", "runsc"],
  );
  assert.equal((await runtimeConfig(signal())).linux?.cgroupDriver, CgroupDriver.SYSTEMD);
  assert.match(
    (await capabilities.unsupportedReason("cpuLimit", signal())) ?? "",
    /cannot limit CPU time.*restart Docker/,
  );
  assert.match((await capabilities.unsupportedReason("appArmor", signal())) ?? "", /does not support AppArmor/);
  assert.match((await capabilities.unsupportedReason("swapLimit", signal())) ?? "", /only together with its memory/);
  assert.match(
    (await capabilities.unsupportedReason("imageVolume", signal())) ?? "",
    /image volumes are not supported.*use containerd/,
  );
  assert.match(
    (await capabilities.unsupportedReason("cdiDevices", signal())) ?? "",
    /Docker Engine 20\.10\.24 cannot inject CDI devices: upgrade it to version 28\.2/,
  );
  assert.match((await capabilities.unsupportedReason("userNamespace", signal())) ?? "", /one user namespace/);
  for (const feature of ["memoryLimit", "seccomp", "privileged"] as const)
    assert.equal(await capabilities.unsupportedReason(feature, signal()), undefined);
});

test("tells a daemon whose CDI is disabled, with the setting that enables it, from one that injects CDI devices", async () => {
  const reasonOf = async (CDISpecDirs: readonly string[]) => {
    const { engine } = engineWith({ more: { ServerVersion: "27.5.1", CDISpecDirs } });
    await using daemon = await engine;
    return await serviceOf(daemon.parts).capabilities.unsupportedReason("cdiDevices", signal());
  };
  assert.match((await reasonOf([])) ?? "", /CDI is disabled in .* 27\.5\.1 .*set "features": \{"cdi": true\}/);
  assert.equal(await reasonOf(["/etc/cdi", "/var/run/cdi"]), undefined);
});

test("probes a fully capable daemon once, removes all probe containers, and lowers the sandboxes' OOM score", async () => {
  const { engine, created, removed } = engineWith({ left: ["old"] });
  await using daemon = await engine;
  const { status, capabilities } = serviceOf(daemon.parts);
  await status(signal());
  await status(signal());
  assert.equal(created.length, 2);
  assert.deepEqual(removed.sort(), ["0", "1", "old"]);
  assert.equal(capabilities.sandboxOomScoreAdj(), -998);
  assert.equal(await capabilities.unsupportedReason("privileged", signal()), undefined);
});

test("reports the missing capabilities of a daemon that starts only plain containers, with its messages", async () => {
  const plain = ({ Privileged, OomScoreAdj }: Readonly<Record<string, unknown>>) => !Privileged && !OomScoreAdj;
  const { engine, created, removed } = engineWith({ starts: plain });
  await using daemon = await engine;
  const { status, capabilities } = serviceOf(daemon.parts);
  await status(signal());
  assert.match(
    (await capabilities.unsupportedReason("privileged", signal())) ?? "",
    /cannot start privileged containers \(not permitted\)/,
  );
  assert.equal(capabilities.sandboxOomScoreAdj(), 0);
  assert.equal(removed.length, created.length);
});

test("draws no conclusion from a daemon that starts nothing, and probes again", async () => {
  const broken = { now: true };
  const { engine } = engineWith({ starts: () => !broken.now });
  await using daemon = await engine;
  const { status, capabilities } = serviceOf(daemon.parts);
  await status(signal());
  assert.equal(await capabilities.unsupportedReason("privileged", signal()), undefined);
  assert.equal(capabilities.isProbed(), false);
  broken.now = false;
  await status(signal());
  assert.equal(capabilities.isProbed(), true);
});

test("probes nothing without the sandbox image", async () => {
  const { engine, created } = engineWith({ image: false });
  await using daemon = await engine;
  const { status, capabilities } = serviceOf(daemon.parts);
  await status(signal());
  assert.deepEqual([created.length, capabilities.isProbed()], [0, false]);
});

const plainOnly = ({ Privileged }: Readonly<Record<string, unknown>>) => !Privileged;

test("determines unknown capabilities on request: from the daemon's info, otherwise by probe", async () => {
  const { engine, created } = engineWith({ starts: plainOnly, image: false, pullable: true });
  await using daemon = await engine;
  const { capabilities } = serviceOf(daemon.parts);
  assert.match((await capabilities.unsupportedReason("cpuLimit", signal())) ?? "", /cannot limit CPU time/);
  assert.equal(created.length, 0, "who asks for what the daemon says waits for no trial");
  const both = await Promise.all([
    capabilities.unsupportedReason("privileged", signal()),
    capabilities.unsupportedReason("privileged", signal()),
  ]);
  for (const why of both) assert.match(why ?? "", /cannot start privileged containers \(not permitted\)/);
  assert.equal(created.length, 3, "once for all who wait");
});

test("without a sandbox image, runs no probes; sandboxes report the reason", async () => {
  const { engine, created } = engineWith({ starts: plainOnly, image: false });
  await using daemon = await engine;
  const { capabilities } = serviceOf(daemon.parts);
  assert.equal(await capabilities.unsupportedReason("privileged", signal()), undefined);
  assert.deepEqual([created.length, capabilities.isProbed()], [0, false]);
});

test("a pod that ends does not wait for probes", async () => {
  const starting = Promise.withResolvers<void>();
  await using daemon = await rawEngine(({ path, response }) => {
    if (path.endsWith("/start")) return starting.resolve();
    response.end(JSON.stringify(path === "/containers/json" ? [] : { Id: "1" }));
  });
  const { capabilities } = serviceOf(daemon.parts);
  const stop = new AbortController();
  const refused = assert.rejects(capabilities.unsupportedReason("privileged", stop.signal), { code: "cancelled" });
  await starting.promise;
  stop.abort();
  await refused;
});

test("without a daemon, version and status return the remedy", async () => {
  const { engine } = engineWith();
  const daemon = await engine;
  await daemon[Symbol.asyncDispose]();
  const { status, version } = serviceOf(daemon.parts);
  const gone = { code: "unavailable", message: /^no Docker Engine responds at \/run\/docker\.sock: start it/ };
  await assert.rejects(version(signal()), gone);
  await assert.rejects(status(signal()), gone);
});

test("a daemon that accepts connections without responding fails after ten seconds", async () => {
  await using daemon = await rawEngine(() => {});
  const { status } = serviceOf(daemon.parts);
  const asked = status(signal());
  const refused = assert.rejects(asked, {
    code: "deadline_exceeded",
    message: /docker\.sock.*within 10 s.*restart it/,
  });
  await daemon.clock.advance(10_001);
  await refused;
});

test("slow probes do not make the daemon unready", async () => {
  const starting = Promise.withResolvers<void>();
  await using daemon = await rawEngine(({ method, path, response }) => {
    if (path.endsWith("/start")) return starting.resolve();
    const answers: Readonly<Record<string, unknown>> = { "/info": info, "/containers/json": [] };
    response.statusCode = method === "POST" ? 201 : 200;
    response.end(JSON.stringify(answers[path] ?? { Id: "1" }));
  });
  const { status, capabilities } = serviceOf(daemon.parts);
  const asked = status(signal());
  await starting.promise;
  await daemon.clock.advance(10_001);
  assert.equal(
    (await asked).status?.conditions.every(({ status: met }) => met),
    true,
  );
  assert.equal(capabilities.isProbed(), false);
});

test("reports the last response while events flow, the daemon responds, and its capabilities are known", async () => {
  const { engine } = engineWith();
  await using daemon = await engine;
  const { cache, docker } = daemon.parts;
  const { status, lastAliveAt } = serviceOf(daemon.parts);
  await status(signal());
  assert.equal(lastAliveAt?.(), undefined, "no events flow");
  cache.start();
  assert.equal(lastAliveAt?.(), undefined, "it may be another since it said how it is");
  await status(signal());
  assert.equal(lastAliveAt?.(), docker.lastResponseAt());
  assert.notEqual(lastAliveAt?.(), undefined);
  cache.invalidate();
  assert.equal(lastAliveAt?.(), undefined);
});

test("requires polling of a daemon that has not been probed yet", async () => {
  const { engine } = engineWith({ image: false });
  await using daemon = await engine;
  daemon.parts.cache.start();
  const { status, lastAliveAt } = serviceOf(daemon.parts);
  await status(signal());
  assert.equal(lastAliveAt?.(), undefined);
});

test("requires polling while a call waits for a long time", async () => {
  await using daemon = await rawEngine(({ path, response }) => {
    if (path === "/info") response.end(JSON.stringify(info));
  });
  const { docker } = daemon.parts;
  assert.equal(docker.lastResponseAt(), undefined);
  await engineInfo(daemon.parts, signal());
  assert.notEqual(docker.lastResponseAt(), undefined);
  const stop = new AbortController();
  const ask = (limit?: "none") =>
    docker.call((engine, abortSignal) => engine.getContainer("c").wait({ abortSignal }), stop.signal, limit);
  const endless = assert.rejects(ask("none"));
  await daemon.clock.advance(6_000);
  assert.notEqual(docker.lastResponseAt(), undefined);
  const waits = assert.rejects(ask());
  await daemon.clock.advance(6_000);
  assert.equal(docker.lastResponseAt(), undefined);
  stop.abort();
  await Promise.all([endless, waits]);
  assert.notEqual(docker.lastResponseAt(), undefined);
});
