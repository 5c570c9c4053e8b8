import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";
import { ContainerState, PodSandboxState } from "../../../src/gen/cri.ts";
import type { NodeGauges } from "../../../src/metrics/node-gauges.ts";
import { type TestPod, aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { boundsOf, parseExposition } from "./exposition.ts";
import { rig } from "./rig.ts";

const pod = (uid: string, more: Partial<TestPod> = {}): TestPod => ({
  ...aPod({ containers: [aContainer("c")] }, { uid, name: uid, creationTimestamp: "2026-01-01T00:00:00Z" }),
  ...more,
});

test("a new node exposes its info metrics in valid exposition format", async () => {
  const { metrics, families, value } = rig();
  assert.equal(await value(String.raw`kubelet_node_name{node=node-\"1\"}`), 1);
  const [build] = (await families()).get("kubernetes_build_info")?.samples ?? [];
  assert.deepEqual(
    [build?.labels["major"], build?.labels["minor"], build?.labels["git_version"], build?.value],
    ["1", "36", "v1.36.3", 1],
  );
  for (const name of ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"])
    assert.ok(((await value(name)) ?? 0) > 0, name);
  assert.equal(await value("kubelet_running_pods"), 0);
  assert.equal(await value("kubelet_credential_provider_config_info{hash=sha256:00}"), 1);
  assert.equal(await value("kubelet_certificate_manager_server_ttl_seconds"), Number.POSITIVE_INFINITY);
  assert.equal(await value("kubelet_pleg_relist_duration_seconds_count"), 0);
  assert.deepEqual(
    [...parseExposition(await metrics.probes()).keys()],
    ["prober_probe_total", "prober_probe_duration_seconds", "process_start_time_seconds"],
  );
});

test("the docs list exactly the metrics that exist", async () => {
  const { metrics, measures, families } = rig();
  measures.cgroups.runtimeOutdated();
  measures.cgroups.memoryReserved(1, 1);
  const page = readFileSync(join(import.meta.dirname, "../../../docs/monitoring.md"), "utf8");
  const [section = ""] = /^## Metrics$[^]*?(?=^## )/m.exec(page) ?? [];
  const table = section.split("\n").filter((line) => line.startsWith("|"));
  const named = table.flatMap((line) => [...line.matchAll(/`([a-z_]+)`/g)].map(([, name = ""]) => name));
  const others = await Promise.all([metrics.probes(), metrics.slis()]);
  const there = new Set([...(await families()).keys(), ...others.flatMap((text) => [...parseExposition(text).keys()])]);
  assert.deepEqual(named.toSorted(), [...there].sort());
});

test("keeps the metrics of two nodes in one process separate", async () => {
  const [one, other] = [rig(), rig()];
  one.measures.starts.podStarting(false);
  assert.deepEqual(
    [await one.value("kubelet_started_pods_total"), await other.value("kubelet_started_pods_total")],
    [1, 0],
  );
});

test("histograms have the kubelet's buckets", async () => {
  const { measures, families } = rig();
  measures.runtime.called("status", 7, false);
  measures.pulls.pulling("u")(5, 1n);
  measures.volumes.setUp("kubernetes.io/secret", 1, false);
  measures.cgroups.changed("create", 1);
  measures.requests.answered("200", "GET", "h", 1);
  const bounds = async (name: string) => boundsOf((await families()).get(name) ?? assert.fail(name));
  const defaults = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
  for (const name of [
    "pleg_relist_duration_seconds",
    "pleg_relist_interval_seconds",
    "pod_worker_start_duration_seconds",
    "cgroup_manager_duration_seconds",
  ])
    assert.deepEqual(await bounds(`kubelet_${name}`), defaults, name);
  const calls = await bounds("kubelet_runtime_operations_duration_seconds");
  assert.deepEqual([calls.length, calls[0], calls[1]], [14, 0.005, 0.0125]);
  assert.deepEqual((await bounds("kubelet_pod_start_duration_seconds")).slice(0, 6), [0.5, 1, 2, 3, 4, 5]);
  assert.deepEqual((await bounds("kubelet_image_pull_duration_seconds")).slice(-3), [1800, 2700, 3600]);
  assert.deepEqual((await bounds("storage_operation_duration_seconds")).at(-1), 600);
  assert.deepEqual((await bounds("rest_client_request_duration_seconds")).at(-1), 60);
  const ages = await bounds("kubelet_certificate_manager_server_rotation_seconds");
  assert.deepEqual([ages.length, ages[0], ages[4], ages.at(-1)], [10, 60, 604_800, 124_416_000]);
});

test("counts runtime calls and HTTP requests by outcome", async () => {
  const { measures, value } = rig();
  measures.runtime.called("status", 7, false);
  measures.runtime.called("status", 3, true);
  measures.runtime.sandboxRun("", 700, false);
  measures.runtime.sandboxRun("kata", 100, true);
  assert.equal(await value("kubelet_runtime_operations_total{operation_type=status}"), 2);
  assert.equal(await value("kubelet_runtime_operations_errors_total{operation_type=status}"), 1);
  assert.equal(await value("kubelet_runtime_operations_duration_seconds_sum{operation_type=status}"), 0.01);
  assert.equal(await value("kubelet_run_podsandbox_duration_seconds_bucket{le=1,runtime_handler=}"), 1);
  assert.equal(await value("kubelet_run_podsandbox_errors_total{runtime_handler=kata}"), 1);
  measures.requests.answered("<error>", "PATCH", "10.0.0.1:6443", 20);
  assert.equal(await value("rest_client_requests_total{code=<error>,host=10.0.0.1:6443,method=PATCH}"), 1);
  measures.requests.repeated("200", "GET", "10.0.0.1:6443");
  measures.requests.sent("PATCH", "10.0.0.1:6443", 300);
  measures.requests.received("PATCH", "10.0.0.1:6443", 70_000);
  assert.equal(await value("rest_client_request_retries_total{code=200,host=10.0.0.1:6443,verb=GET}"), 1);
  assert.equal(await value("rest_client_request_size_bytes_bucket{host=10.0.0.1:6443,le=512,verb=PATCH}"), 1);
  assert.equal(await value("rest_client_response_size_bytes_sum{host=10.0.0.1:6443,verb=PATCH}"), 70_000);
  const end = measures.serving.began("GET", "exec");
  measures.serving.began("BREW", "teapot")(1);
  const exec = "long_running=true,method=GET,path=exec,server_type=readwrite";
  const odd = "long_running=false,method=other,path=other,server_type=readwrite";
  assert.equal(await value(`kubelet_http_inflight_requests{${exec}}`), 1);
  end(2_000);
  assert.equal(await value(`kubelet_http_inflight_requests{${exec}}`), 0);
  assert.equal(await value(`kubelet_http_requests_duration_seconds_sum{${exec}}`), 2);
  assert.equal(await value(`kubelet_http_requests_total{${odd}}`), 1);
});

test("counts evictions, cgroup operations, resizes, volume teardowns, certificate rotations and event streams", async () => {
  const { metrics, measures, families, value } = rig();
  assert.deepEqual((await families()).get("kubelet_evictions")?.samples, [], "no series before the first eviction");
  measures.evictions.evicted("emptydirfs.limit");
  measures.evictions.evicted("emptydirfs.limit");
  measures.cgroups.changed("destroy", 20);
  assert.equal((await families()).get("kubelet_cri_losing_support"), undefined);
  measures.cgroups.runtimeOutdated();
  measures.cgroups.runtimeOutdated();
  measures.resizes.requested("cpu", "limits", "add");
  measures.resizes.accepted("pods_removed");
  measures.resizes.infeasible("swap_limitation");
  measures.resizes.actuated(70, true);
  measures.volumes.tornDown("kubernetes.io/secret", 300, true);
  measures.volumes.mapped("kubernetes.io/local-volume", 300, false);
  measures.volumes.unmapped("kubernetes.io/local-volume", 300, false);
  measures.volumes.deviceUnmapped("kubernetes.io/local-volume", 300, false);
  measures.certificates.client.failed();
  measures.certificates.client.replaced(1_000);
  measures.certificates.server.failed();
  measures.certificates.server.replaced(3_600_000);
  measures.pleg.eventStreamOpened();
  measures.pleg.eventStreamFailed();
  measures.cleanedUp(3, 1);
  measures.cleanedUp(2, 1);
  measures.devices.registering("example.com/gpu");
  measures.devices.allocated("example.com/gpu", 250);
  const alignedCores = "kubelet_container_aligned_compute_resources_count{boundary=physical_cpu,scope=container}";
  assert.equal(await value(alignedCores), undefined, "without the static policy");
  measures.cpus.enabled();
  assert.equal(await value(alignedCores), 0);
  measures.cpus.requested();
  measures.cpus.failed("node", true);
  measures.cpus.wholeCores();
  measures.cpus.sharedCache();
  for (const operation of ["map_volume", "unmap_volume", "unmap_device"]) {
    const labels = `migrated=false,operation_name=${operation},status=success,volume_plugin=kubernetes.io/local-volume`;
    assert.equal(await value(`storage_operation_duration_seconds_count{${labels}}`), 1, operation);
  }
  const unmount = "migrated=false,operation_name=volume_unmount,status=fail-unknown,volume_plugin=kubernetes.io/secret";
  const expected: Readonly<Record<string, number>> = {
    "kubelet_evictions{eviction_signal=emptydirfs.limit}": 2,
    "kubelet_cgroup_manager_duration_seconds_sum{operation_type=destroy}": 0.02,
    "kubelet_cri_losing_support{version=1.37.0}": 1,
    "kubelet_container_requested_resizes_total{operation=add,requirement=limits,resource=cpu}": 1,
    "kubelet_pod_deferred_accepted_resizes_total{retry_trigger=pods_removed}": 1,
    "kubelet_pod_infeasible_resizes_total{reason_detail=swap_limitation}": 1,
    "kubelet_pod_resize_duration_milliseconds_sum{success=true}": 70,
    [`storage_operation_duration_seconds_sum{${unmount}}`]: 0.3,
    kubelet_certificate_manager_client_expiration_renew_errors: 1,
    kubelet_server_expiration_renew_errors: 1,
    kubelet_certificate_manager_server_rotation_seconds_sum: 3_600,
    kubelet_evented_pleg_connection_success_count: 1,
    kubelet_orphan_pod_cleaned_volumes: 2,
    kubelet_orphan_pod_cleaned_volumes_errors: 1,
    "kubelet_device_plugin_registration_total{resource_name=example.com/gpu}": 1,
    "kubelet_device_plugin_alloc_duration_seconds_bucket{le=0.25,resource_name=example.com/gpu}": 1,
    kubelet_cpu_manager_pinning_requests_total: 1,
    kubelet_cpu_manager_pinning_errors_total: 1,
    kubelet_cpu_manager_shared_pool_size_millicores: 0,
    kubelet_cpu_manager_exclusive_cpu_allocation_count: 0,
    "kubelet_container_aligned_compute_resources_count{boundary=physical_cpu,scope=container}": 1,
    "kubelet_container_aligned_compute_resources_count{boundary=uncore_cache,scope=container}": 1,
    "kubelet_container_aligned_compute_resources_failure_count{boundary=physical_cpu,scope=container}": 1,
    kubelet_evented_pleg_connection_error_count: 1,
    "kubernetes_feature_enabled{name=KubeletCrashLoopBackOffMax,stage=BETA}": 0,
    "kubernetes_feature_enabled{name=RotateKubeletServerCertificate,stage=BETA}": 1,
    "kubernetes_feature_enabled{name=CustomCPUCFSQuotaPeriod,stage=}": 1,
  };
  for (const [series, count] of Object.entries(expected)) assert.equal(await value(series), count, series);
  assert.ok(!(await metrics.text()).includes("client_rotation"));
});

test("observes images by size; counts rejections by a bounded set of reasons", async () => {
  const { measures, value } = rig();
  for (const bytes of [0n, 10n << 20n, (10n << 20n) + 1n, 2n << 30n, 200n << 30n])
    measures.pulls.pulling("u")(1_500, bytes);
  for (const size of ["N/A", "0-10MB", "10MB-100MB", "1GB-5GB", "GT100GB"])
    assert.equal(await value(`kubelet_image_pull_duration_seconds_count{image_size_in_bytes=${size}}`), 1, size);
  measures.pulls.ensured("IfNotPresent", true, false);
  const ensured = "present_locally=true,pull_policy=ifnotpresent,pull_required=false";
  assert.equal(await value(`kubelet_image_manager_ensure_image_requests_total{${ensured}}`), 1);
  for (const reason of ["OutOfcpu", "OutOfexample.com/gpu", "TaintToleration"]) measures.rejected(reason);
  for (const reason of ["OutOfcpu", "OutOfExtendedResources", "Other"])
    assert.equal(await value(`kubelet_admission_rejections_total{reason=${reason}}`), 1, reason);
});

test("measures a pod's start from when it is first seen until the first sync, until Running, and until the API server's watch shows it", async () => {
  const { clock, measures, value } = rig();
  const waiting = pod("p");
  measures.seen([waiting]);
  await clock.advance(100);
  measures.workers.started(waiting);
  measures.workers.synced("create", 1_500);
  measures.statuses.changed(waiting, { phase: "Pending" }, { phase: "Pending" });
  assert.equal(await value("kubelet_pod_start_duration_seconds_sum"), 0.1, "until its first status, like the kubelet");
  const pulled = [measures.pulls.pulling("p"), measures.pulls.pulling("p")];
  await clock.advance(2_000);
  for (const done of pulled) done(2_000, 5n);
  await clock.advance(900);
  const running = {
    phase: "Running",
    containerStatuses: [aShown("c", { running: { startedAt: "2026-01-01T00:00:03Z" } })],
    initContainerStatuses: [
      aShown("init", {
        terminated: { exitCode: 0, startedAt: "2026-01-01T00:00:00Z", finishedAt: "2026-01-01T00:00:00.5Z" },
      }),
    ],
  };
  measures.statuses.changed(waiting, { phase: "Pending" }, { phase: "Running", reason: "NotRunByGraftlet" });
  measures.statuses.changed(waiting, { phase: "Pending" }, running);
  measures.statuses.changed(waiting, running, running);
  measures.statuses.written({ ...waiting, status: running }, 40);
  measures.statuses.written({ ...waiting, status: running }, 60);
  assert.equal(await value("kubelet_pod_worker_start_duration_seconds_sum"), 0.1);
  assert.equal(await value("kubelet_containers_per_pod_count_bucket{le=1}"), 1);
  assert.equal(await value("kubelet_pod_worker_duration_seconds_sum{operation_type=create}"), 1.5);
  assert.equal(await value("kubelet_pod_start_duration_seconds_sum"), 3.1);
  assert.equal(await value("kubelet_pod_start_duration_seconds_count"), 2);
  assert.equal(await value("kubelet_pod_start_total_duration_seconds_sum"), 3);
  assert.equal(await value("kubelet_pod_start_total_duration_seconds_count"), 1);
  assert.equal(await value("kubelet_pod_start_sli_duration_seconds_sum"), 0.5);
  assert.equal(await value("kubelet_first_network_pod_start_sli_duration_seconds"), 0.5);
  const later = pod("later");
  measures.seen([later]);
  measures.statuses.written(
    { ...later, status: { phase: "Running", containerStatuses: running.containerStatuses } },
    0,
  );
  assert.equal(await value("kubelet_first_network_pod_start_sli_duration_seconds"), 0.5, "the first pod only");
  assert.equal(await value("kubelet_pod_status_sync_duration_seconds_sum"), 0.1);
  assert.equal(
    await value("kubelet_terminated_containers_total{container_type=init_container,exit_code=0,reason=}"),
    1,
  );
});

test("the start SLI excludes pods that started earlier, have volumes, or are gone", async () => {
  const { measures, value } = rig();
  const running = { phase: "Running", containerStatuses: [aShown("c", { running: {} })] };
  const old = pod("old", { status: { startTime: "2026-01-01T00:00:00Z" } });
  const stateful = pod("stateful");
  const gone = pod("gone");
  measures.seen([old, stateful, gone]);
  measures.forget("gone");
  for (const each of [old, gone]) measures.statuses.written({ ...each, status: running }, 1);
  for (const each of [old, old, gone]) measures.statuses.changed(each, running, running);
  assert.equal(
    await value("kubelet_pod_start_duration_seconds_count"),
    1,
    "the kubelet counts pods that started earlier",
  );
  measures.statuses.changed(stateful, undefined, { phase: "Failed" });
  assert.equal(await value("kubelet_pod_start_duration_seconds_count"), 1, "a rejected pod is not started");
  assert.equal(await value("kubelet_pod_start_total_duration_seconds_count"), 0);
  const volumes = [{ name: "v", hostPath: { path: "/" } }];
  measures.statuses.written({ ...stateful, spec: { ...stateful.spec, volumes }, status: running }, 1);
  assert.equal(await value("kubelet_pod_start_total_duration_seconds_count"), 1);
  assert.equal(await value("kubelet_pod_start_sli_duration_seconds_count"), 0);
});

test("gauges are read at scrape time", async () => {
  const { clock, metrics, families, value } = rig();
  const volumes = [
    { name: "a", emptyDir: {} },
    { name: "b", secret: { secretName: "s" } },
  ];
  const one = pod("one");
  const ephemeralContainers = [aContainer("debug-1"), aContainer("debug-2")];
  const wanted = { ...one, spec: { ...one.spec, volumes, ephemeralContainers } };
  const mirror = aPod({}, { uid: "mirror", annotations: { "kubernetes.io/config.mirror": "x" } });
  const fromFile = aPod({}, { uid: "file", annotations: { "kubernetes.io/config.source": "file" } });
  const { CONTAINER_EXITED, CONTAINER_RUNNING } = ContainerState;
  const ended = observe(
    [aSandbox({ state: PodSandboxState.SANDBOX_NOTREADY })],
    [aStatus(aContainer("c"), CONTAINER_EXITED)],
  );
  const alive = observe(
    [aSandbox()],
    ["c", "d"].map((name) => aStatus(aContainer(name), CONTAINER_RUNNING)),
  );
  const all = [wanted, fromFile];
  const pair = await makeSelfSigned("node", [], clock.now());
  const view: NodeGauges = {
    desired: { get: (uid) => all.find((one) => one.metadata.uid === uid), byName: () => undefined, list: () => all },
    mirrors: () => [mirror],
    podCache: { get: () => undefined, list: () => [alive, ended] },
    workers: () => [
      { uid: "one", phase: "syncing", pod: wanted },
      { uid: "file", phase: "finished", pod: fromFile },
      { uid: "lost", phase: "terminating", pod: pod("lost") },
      { uid: "stray", phase: "finished", pod: undefined },
    ],
    mounted: (uid) => new Map(uid === "one" ? [["a", { hostPath: "/a", readOnly: false }]] : []),
    resizes: () => ({ deferred: 2, infeasible: 3, inProgress: 1 }),
    placeholders: () => [{ namespace: "kube-system", daemonSet: "kube-proxy", pods: 1 }],
    cgroupVersion: 2,
    podCertificates: () => [
      { signerName: "example.com/s", state: "fresh" },
      { signerName: "example.com/s", state: "fresh" },
    ],
    link: { trouble: () => undefined, losses: () => 3 },
    reachable: () => false,
    servingCertificate: () => pair.certificate,
    clientCertificate: () => undefined,
  };
  metrics.show(view);
  const expected: Readonly<Record<string, number>> = {
    kubelet_running_pods: 1,
    "kubelet_running_containers{container_state=running}": 2,
    "kubelet_running_containers{container_state=exited}": 1,
    "kubelet_desired_pods{static=}": 1,
    "kubelet_desired_pods{static=true}": 1,
    "kubelet_active_pods{static=true}": 0,
    "kubelet_active_pods{static=}": 1,
    "kubelet_podcertificate_states{signer_name=example.com/s,state=fresh}": 2,
    kubelet_mirror_pods: 1,
    kubelet_managed_ephemeral_containers: 2,
    "kubelet_working_pods{config=desired,lifecycle=sync,static=}": 1,
    "kubelet_working_pods{config=orphan,lifecycle=terminating,static=}": 1,
    "kubelet_working_pods{config=runtime_only,lifecycle=terminated,static=unknown}": 1,
    "kubelet_working_pods{config=desired,lifecycle=terminated,static=true}": 1,
    "volume_manager_total_volumes{plugin_name=kubernetes.io/empty-dir,state=desired_state_of_world}": 1,
    "volume_manager_total_volumes{plugin_name=kubernetes.io/empty-dir,state=actual_state_of_world}": 1,
    "volume_manager_total_volumes{plugin_name=kubernetes.io/secret,state=desired_state_of_world}": 1,
    "kubelet_pod_pending_resizes{reason=deferred}": 2,
    "kubelet_pod_pending_resizes{reason=infeasible}": 3,
    kubelet_pod_in_progress_resizes: 1,
    kubelet_cgroup_version: 2,
    graftlet_link_up: 1,
    graftlet_link_losses_total: 3,
    graftlet_kubelet_reachable: 0,
    "graftlet_placeholder_pods{daemonset=kube-proxy,namespace=kube-system}": 1,
    kubelet_certificate_manager_client_ttl_seconds: Number.POSITIVE_INFINITY,
  };
  for (const [series, count] of Object.entries(expected)) assert.equal(await value(series), count, series);
  assert.equal(
    await value("volume_manager_total_volumes{plugin_name=kubernetes.io/secret,state=actual_state_of_world}"),
    undefined,
  );
  metrics.show({ ...view, link: undefined, reachable: () => undefined });
  for (const absent of ["graftlet_link_up", "graftlet_kubelet_reachable"])
    assert.equal(await value(absent), undefined, `${absent} of a node on its own machine, outside a Pod`);
  const many = Array.from({ length: 103 }, (_, index) => ({ namespace: "n", daemonSet: `d${index}`, pods: 2 }));
  metrics.show({ ...view, placeholders: () => many });
  assert.equal(
    (await families()).get("graftlet_placeholder_pods")?.samples.length,
    101,
    "the number of series is bounded",
  );
  assert.equal(await value("graftlet_placeholder_pods{daemonset=,namespace=}"), 6);
  metrics.show({ ...view, workers: () => [] });
  const shown = (await families()).get("volume_manager_total_volumes")?.samples;
  assert.deepEqual(shown, [], "removed items have no series");
  const left = (await value("kubelet_certificate_manager_server_ttl_seconds")) ?? 0;
  assert.ok(left > 86_400 && Number.isInteger(left), `${left} s`);
  metrics.show({ ...view, servingCertificate: () => "no certificate" });
  assert.equal(await value("kubelet_certificate_manager_server_ttl_seconds"), 0);
});

test("measures duration, interval and time of relists", async () => {
  const { clock, measures, value } = rig();
  measures.pleg.relistStarted(undefined);
  await clock.advance(250);
  measures.pleg.relisted(250);
  measures.pleg.relistStarted(30_000);
  measures.pleg.inspected(10);
  assert.equal(await value("kubelet_pleg_relist_interval_seconds_sum"), 30);
  assert.equal(await value("kubelet_pleg_relist_interval_seconds_count"), 1);
  assert.equal(await value("kubelet_pleg_relist_duration_seconds_sum"), 0.25);
  assert.equal(await value("kubelet_pleg_pod_relist_duration_seconds_count"), 1);
  assert.equal(await value("kubelet_pleg_last_seen_seconds"), Date.UTC(2026, 0, 1) / 1000);
});

function aShown(name: string, state: object) {
  return { name, state, image: "", imageID: "", ready: true, restartCount: 0 };
}
