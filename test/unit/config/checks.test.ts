import assert from "node:assert/strict";
import { test } from "node:test";
import { kubeletFile, nodeOf, refusalOf } from "./files.ts";

/** Options of the static CPU manager policy that are refused. */
const staticRefusals: [options: string, sentence: RegExp][] = [
  ['{full-cpus: "true"}', /unknown CPU Manager Policy option: "full-cpus"$/],
  [
    '{full-pcpus-only: "yes"}',
    /bad value for option "full-pcpus-only": strconv\.ParseBool: parsing "yes": invalid syntax$/,
  ],
  [
    '{align-by-socket: "true"}',
    /CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided$/,
  ],
  [
    '{distribute-cpus-across-numa: "true", prefer-align-cpus-by-uncorecache: "true"}',
    /static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa can not be used at the same time$/,
  ],
  [
    '{distribute-cpus-across-cores: "true", full-pcpus-only: "true"}\nfeatureGates: {CPUManagerPolicyAlphaOptions: true}',
    /static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time$/,
  ],
  [
    '{distribute-cpus-across-numa: "true"}\nfeatureGates: {CPUManagerPolicyBetaOptions: false}',
    /CPU Manager Policy Beta-level Options not enabled, but option "distribute-cpus-across-numa" provided$/,
  ],
];

/** Options of the topology manager that are refused; with the policy none they do not matter. */
const topologyRefusals: [options: string, sentence: RegExp][] = [
  ['{closest: "true"}', /unknown Topology Manager Policy option: "closest"$/],
  [
    '{prefer-closest-numa-nodes: "yes"}',
    /bad value for option "prefer-closest-numa-nodes": strconv\.ParseBool: parsing "yes": invalid syntax$/,
  ],
  [
    '{max-allowable-numa-nodes: "many"}',
    /unable to convert policy option to integer "max-allowable-numa-nodes": strconv\.Atoi: parsing "many": invalid syntax$/,
  ],
  ['{max-allowable-numa-nodes: "7"}', /the minimum value of "max-allowable-numa-nodes" should not be less than 8$/],
];

const refusals: readonly [string, RegExp][] = [
  ["port: 70000", /^port \(--port\) is 70000: use a port from 1 to 65535$/],
  ["healthzPort: -1", /^healthzPort .* or 0 for none$/],
  ["nodeLeaseDurationSeconds: -5", /^nodeLeaseDurationSeconds is -5: use a value of 1 or more$/],
  ["maxPods: -1", /^maxPods .* 0 or more$/],
  ["oomScoreAdj: 2000", /-1000 to 1000$/],
  ["cpuCFSQuotaPeriod: 2s", /^cpuCFSQuotaPeriod \(--cpu-cfs-quota-period\) is "2s": use a value of 1ms to 1s$/],
  [
    "imageGCHighThresholdPercent: 70",
    /^imageGCLowThresholdPercent .* is 80: set it below imageGCHighThresholdPercent, which is 70$/,
  ],
  ["imageMaximumGCAge: 1m", /^imageMaximumGCAge is "1m0s": set it above imageMinimumGCAge, which is 2m0s$/],
  [
    "maxParallelImagePulls: 3\nserializeImagePulls: true",
    /^maxParallelImagePulls is 3: set serializeImagePulls to false/,
  ],
  ["maxParallelImagePulls: 0", /^maxParallelImagePulls is 0: use a value of 1 or more$/],
  ["runOnce: true", /^runOnce \(--runonce\) is true: run-once mode was removed/],
  ["systemCgroups: /system", /^systemCgroups .* set cgroupRoot/],
  ["enforceNodeAllocatable: [pods, pods]", /: duplicated enforcements "pods" in enforceNodeAllocatable \(--enforce-/],
  [
    "enforceNodeAllocatable: [none, pods]",
    /: enforceNodeAllocatable \(--enforce-node-allocatable\) may not contain additional enforcements when "none" is/,
  ],
  [
    "enforceNodeAllocatable: [nodes]",
    /: option "nodes" specified for enforceNodeAllocatable \(--enforce-node-allocatable\)\. Valid options are "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible" or "none"$/,
  ],
  [
    "enforceNodeAllocatable: [system-reserved]",
    /: systemReservedCgroup \(--system-reserved-cgroup\) must be specified when "system-reserved" or "system-reserved-compressible" included in enforceNodeAllocatable/,
  ],
  [
    "enforceNodeAllocatable: [kube-reserved-compressible]",
    /: kubeReservedCgroup \(--kube-reserved-cgroup\) must be specified when "kube-reserved" or "kube-reserved-compressible" included/,
  ],
  [
    "enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\nkubeReservedCgroup: /k",
    /: both "kube-reserved" and "kube-reserved-compressible" cannot be specified together in enforceNodeAllocatable/,
  ],
  [
    "cgroupsPerQOS: false",
    /^enforceNodeAllocatable .*: cgroupsPerQOS \(--cgroups-per-qos\) must be set to true when "pods" contained in enforceNodeAllocatable/,
  ],
  [
    "shutdownGracePeriod: 10s\nshutdownGracePeriodCriticalPods: 20s",
    /set it to at most shutdownGracePeriod, which is 10s$/,
  ],
  ["shutdownGracePeriod: 1ms", /use 0s, or at least 1s$/],
  [
    "shutdownGracePeriod: 10s\nshutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 5}]",
    /leave out shutdownGracePeriod/,
  ],
  [
    "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 5}]\nfeatureGates: {GracefulNodeShutdownBasedOnPodPriority: false}",
    /do not turn feature gate GracefulNodeShutdownBasedOnPodPriority off$/,
  ],
  ["crashLoopBackOff: {maxContainerRestartPeriod: 10m}", /use a value of 1s to 5m$/],
  [
    "crashLoopBackOff: {maxContainerRestartPeriod: 10s}\nfeatureGates: {KubeletCrashLoopBackOffMax: false}",
    /do not turn feature gate/,
  ],
  ["containerLogMaxFiles: 1", /use a value of 2 or more$/],
  ["containerLogMonitorInterval: 1s", /use a value of 3s or longer$/],
  ["containerLogMaxSize: big", /use a size such as "10Mi"$/],
  ["podLogsDir: logs", /^podLogsDir is "logs": use an absolute path/],
  ["podLogsDir: /var/../log", /use an absolute path/],
  ["podLogsDir: /var/log/", /use an absolute path/],
  ["memoryThrottlingFactor: 2", /above 0 and up to 1$/],
  ["memoryReservationPolicy: TieredReservation", /turn feature gate MemoryQoS on/],
  ["enableSystemLogQuery: true\nenableSystemLogHandler: false", /set enableSystemLogHandler to true too$/],
  ["evictionHard: {memory.free: 1Gi}", /unsupported eviction signal memory\.free: use only /],
  ["evictionHard: {memory.available: 0}", /^\/k: evictionHard .* expected a map/],
  ['evictionHard: {memory.available: "0"}', /eviction threshold memory\.available must be positive: 0$/],
  ["evictionHard: {memory.available: much}", /set memory\.available to a quantity such as/],
  ["evictionHard: {memory.available: 110%}", /eviction percentage threshold memory\.available must be <= 100%: 110%$/],
  ["evictionHard: {memory.available: -1%}", /eviction percentage threshold memory\.available must be >= 0%: -1%$/],
  [
    "evictionSoftGracePeriod: {memory.available: -1s}",
    /invalid eviction grace period specified: -1s, must be a positive value$/,
  ],
  ["evictionSoftGracePeriod: {memory.available: soon}", /set memory\.available to a duration such as/],
  [
    "evictionMinimumReclaim: {nodefs.available: 0%}",
    /eviction percentage minimum reclaim nodefs\.available must be positive: 0%$/,
  ],
  [
    'evictionMinimumReclaim: {nodefs.available: "-1"}',
    /negative eviction minimum reclaim specified for nodefs\.available$/,
  ],
  [
    "evictionSoft: {memory.available: 1Gi}",
    /grace period must be specified for the soft eviction threshold memory\.available: set one in evictionSoftGracePeriod$/,
  ],
  ['systemReserved: {gpu: "1"}', /reserve only cpu, memory, ephemeral-storage, pid, not gpu$/],
  ['kubeReserved: {cpu: "-1"}', /set cpu to a quantity/],
  ["allowedUnsafeSysctls: [kernel.msg*, vm.swappiness]", /allow only kernel.shm\*, .*, not vm.swappiness$/],
  ["reservedSystemCPUs: 3-1", /use a CPU list such as "0-3,8"$/],
  [
    "reservedSystemCPUs: 0-1\nkubeReservedCgroup: /k",
    /: can't use reservedSystemCPUs \(--reserved-cpus\) with systemReservedCgroup \(--system-reserved-cgroup\) or kubeReservedCgroup/,
  ],
  [
    "cpuManagerPolicy: static",
    /the static policy requires systemreserved\.cpu \+ kubereserved\.cpu to be greater than zero$/,
  ],
  ['cpuManagerPolicy: static\nkubeReserved: {cpu: "0"}', /to be greater than zero$/],
  ['cpuManagerPolicyOptions: {full-pcpus-only: "true"}', /None policy: received unsupported options/],
  ...staticRefusals.map(([options, sentence]): [string, RegExp] => [
    `cpuManagerPolicy: static\nreservedSystemCPUs: "0"\ncpuManagerPolicyOptions: ${options}`,
    sentence,
  ]),
  ...topologyRefusals.map(([options, sentence]): [string, RegExp] => [
    `topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: ${options}`,
    sentence,
  ]),
  [
    'cpuManagerPolicy: static\nreservedSystemCPUs: "0"\ncpuManagerPolicyOptions: {align-by-socket: "true"}\nfeatureGates: {CPUManagerPolicyAlphaOptions: true}\ntopologyManagerPolicy: single-numa-node',
    /: Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option$/,
  ],
  [
    "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 0, limits: {memory: 2Gi}}]",
    /: the reserved memory has a duplicate value for NUMA node 0 and resource "memory"$/,
  ],
  ["tlsCertFile: /c", /^tlsCertFile is "\/c": set tlsPrivateKeyFile too/],
  ["tlsCipherSuites: [AES]", /use names such as TLS_/],
  ["userNamespaces: {idsPerPod: 1000}", /use a multiple of 65536/],
  ["preloadedImagesVerificationAllowlist: [a]", /set imagePullCredentialsVerificationPolicy/],
  ["serverTLSBootstrap: true\nfeatureGates: {RotateKubeletServerCertificate: false}", /do not turn feature gate/],
  [
    "tracing: {samplingRatePerMillion: 2000000}",
    /: sampling rate per million must be less than or equal to one million$/,
  ],
  ["tracing: {samplingRatePerMillion: -1}", /: sampling rate must be positive$/],
  ["tracing: {endpoint: 'http://localhost:4317'}", /: unsupported scheme: http\.  Options are none, dns, unix, /],
  ["tracing: {endpoint: ''}", /: set the address of a collector, such as localhost:4317 or /],
  ["tracing: {endpoint: 'localhost:port'}", /: set the address of a collector, such as localhost:4317 or /],
  [
    "featureGates: {EventPLEG: true}",
    /^featureGates\.EventPLEG \(--feature-gates\) is true: Kubernetes 1\.36 has no such feature gate; did you mean EventedPLEG\?$/,
  ],
  ["featureGates: {SidecarContainers: false}", /the gate is locked to true at 1\.36; leave it out$/],
  ["featureGates: {SystemdWatchdog: false}", /the gate is locked to true at 1\.36; leave it out$/],
  ["featureGates: {SeparateCacheWatchRPC: true}", /the gate is locked to false at 1\.36; leave it out$/],
  ["featureGates: {NodeSwap: false}", /the gate is locked to true at 1\.36; leave it out$/],
];
for (const [body, sentence] of refusals) {
  test(`refuses the configuration ${body.replaceAll("\n", "; ")}`, () => {
    assert.match(refusalOf(["--config=/k"], { "/k": kubeletFile(body) }), sentence);
  });
}

test("accepts values at the bounds of their ranges", () => {
  const body = [
    "port: 65535",
    "healthzPort: 0",
    "crashLoopBackOff: {maxContainerRestartPeriod: 1s}",
    "podLogsDir: /",
    "nodeStatusMaxImages: -1",
    "enforceNodeAllocatable: [none]",
    "cgroupsPerQOS: false",
    "evictionHard: {memory.available: 100%, nodefs.available: 0%}",
    "featureGates: {NodeSwap: true, AllBeta: false}",
    "userNamespaces: {idsPerPod: 131072}",
  ].join("\n");
  const { kubelet } = nodeOf(["--config=/k"], { "/k": kubeletFile(body) });
  assert.equal(kubelet.port, 65_535);
  assert.equal(kubelet.podLogsDir, "/");
});
