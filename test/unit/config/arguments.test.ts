import assert from "node:assert/strict";
import { test } from "node:test";
import { flagsOf } from "../../../src/config/arguments.ts";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import { kubeletFields } from "../../../src/config/kubelet-fields.ts";
import { optionFields } from "../../../src/config/option-fields.ts";
import { kubeletVersion } from "../../../src/version.ts";
import { filesIo, nodeOf, refusalOf, run } from "./files.ts";

test("accepts every spelling of flags that the kubelet accepts", () => {
  assert.equal(nodeOf(["--port", "1234"]).kubelet.port, 1234);
  assert.equal(nodeOf(["--port=1234"]).kubelet.port, 1234);
  assert.equal(nodeOf(["--max_pods=7"]).kubelet.maxPods, 7);
  assert.equal(nodeOf(["--register-node=false"]).kubelet.registerNode, false);
  assert.equal(nodeOf(["--register-node=false", "--register-node"]).kubelet.registerNode, true);
  for (const verbosity of [["-v4"], ["-v", "4"], ["-v=4"], ["--v=4"]])
    assert.equal(run(verbosity).logging.verbosity, 4, verbosity.join(" "));
});

test("accumulates lists and maps over repeated flags", () => {
  assert.deepEqual(nodeOf(["--cluster-dns=10.0.0.1,10.0.0.2", "--cluster-dns=10.0.0.3"]).kubelet.clusterDNS, [
    "10.0.0.1",
    "10.0.0.2",
    "10.0.0.3",
  ]);
  assert.deepEqual(nodeOf(["--system-reserved=cpu=1,memory=1Gi", "--system-reserved=pid=100"]).kubelet.systemReserved, {
    cpu: "1",
    memory: "1Gi",
    pid: "100",
  });
  assert.deepEqual(nodeOf(["--eviction-hard=memory.available<1Gi"]).kubelet.evictionHard, {
    "memory.available": "1Gi",
  });
  assert.deepEqual(nodeOf(["--node-labels=a=b,c"]).nodeLabels, { a: "b", c: "" });
  assert.deepEqual(nodeOf(["--register-with-taints=a=b:NoSchedule,c:NoExecute"]).kubelet.registerWithTaints, [
    { key: "a", value: "b", effect: "NoSchedule" },
    { key: "c", effect: "NoExecute" },
  ]);
  assert.deepEqual(
    nodeOf(["--feature-gates=EventedPLEG=true", "--feature-gates=EnvFiles=false"]).kubelet.featureGates,
    {
      EventedPLEG: true,
      EnvFiles: false,
    },
  );
  assert.deepEqual(nodeOf(["--reserved-memory=0:memory=1Gi;1:memory=2Gi,hugepages-2Mi=4Mi"]).kubelet.reservedMemory, [
    { numaNode: 0, limits: { memory: "1Gi" } },
    { numaNode: 1, limits: { memory: "2Gi", "hugepages-2Mi": "4Mi" } },
  ]);
});

test("help and version take precedence over all other flags", () => {
  const help = parseCommandLine(["--port=1", "-h"], filesIo());
  assert.ok(help.kind === "help" && help.text.split("\n").length <= 80 && help.text.includes("--provider"));
  const version = parseCommandLine(["--version"], filesIo());
  assert.ok(version.kind === "version" && version.text.startsWith(`Kubernetes ${kubeletVersion} `));
});

test("every flag listed by --help exists", () => {
  const help = parseCommandLine(["--help"], filesIo());
  assert.ok(help.kind === "help");
  const named = [...help.text.matchAll(/--([a-z][a-z0-9-]+)/g)].map(([, flag]) => flag ?? "");
  const known = flagsOf(optionFields, kubeletFields);
  assert.ok(named.length > 40);
  assert.deepEqual(
    named.filter((flag) => !known.has(flag) && flag !== "help" && flag !== "version"),
    [],
  );
});

test("every flag listed by remove --help exists; only two of them are specific to remove", () => {
  const help = parseCommandLine(["remove", "--help"], filesIo());
  assert.ok(help.kind === "help" && help.text.startsWith("graftlet remove: "));
  const named = new Set([...help.text.matchAll(/--([a-z][a-z0-9-]+)/g)].map(([, flag]) => flag ?? ""));
  const known = flagsOf(optionFields, kubeletFields);
  assert.deepEqual(
    [...named].filter((flag) => !known.has(flag)),
    ["node", "yes"],
  );
});

const refusals: readonly [readonly string[], string][] = [
  [["--prot=1"], "--prot is not a flag of graftlet; did you mean --port?"],
  [["--quite-unheard-of"], "--quite-unheard-of is not a flag of graftlet; --help lists the flags"],
  [["--port"], "--port needs a value: expected a whole number from -2147483648 to 2147483647"],
  [["--port=x"], '--port is "x": expected a whole number from -2147483648 to 2147483647'],
  [
    ["--register-node", "true"],
    'argument is "true": graftlet takes flags only; write the value of a switch as --flag=value',
  ],
  [["-port=1"], "-port=1 is not a flag; write flags with two dashes, as in --port=1"],
  [
    ["--register-with-taints=a=b:Never"],
    '--register-with-taints is "a=b:Never": expected a list of taints {key, value, effect: NoSchedule | PreferNoSchedule | NoExecute} (in a flag: key=value:effect)',
  ],
  [["--address=localhost"], '--address is "localhost": expected an IP address such as "0.0.0.0"'],
];
for (const [argv, sentence] of refusals) {
  test(`refuses the arguments ${argv.join(" ")}`, () => assert.equal(refusalOf(argv), sentence));
}
