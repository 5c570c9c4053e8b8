import assert from "node:assert/strict";
import { test } from "node:test";
import { circlesOf, faultsOf } from "../../../tools/import-rules.ts";

const cases: readonly [name: string, path: string, source: string, faults: readonly string[]][] = [
  [
    "a stage may import what lies below it",
    "src/sync/a.ts",
    'import { x } from "../pod/x.ts";\nimport type { Pod } from "../objects.ts";',
    [],
  ],
  ["a stage may import itself", "src/sync/a.ts", 'export * from "./b.ts";', []],
  [
    "a stage must not import another",
    "src/sync/a.ts",
    'import { x } from "../lib/x.ts";\nimport {\n  y,\n} from "../runtime/y.ts";',
    ["src/sync/a.ts:2: sync must not import runtime; declare a port in src/sync instead"],
  ],
  [
    "not by type, by export or lazily either",
    "src/status/a.ts",
    'import type { x } from "../sync/x.ts";\nexport { y } from "../volumes/y.ts";\nconst z = await import("../probes/z.ts");',
    [
      "src/status/a.ts:1: status must not import sync; declare a port in src/status instead",
      "src/status/a.ts:2: status must not import volumes; declare a port in src/status instead",
      "src/status/a.ts:3: status must not import probes; declare a port in src/status instead",
    ],
  ],
  [
    "metrics may import the types that stages measure with, not their values",
    "src/metrics/a.ts",
    'import type { M } from "../sync/x.ts";\nimport type { N } from "../server/y.ts";\nimport { z } from "../sync/z.ts";',
    ["src/metrics/a.ts:3: metrics must not import sync; declare a port in src/metrics instead"],
  ],
  [
    "who implements a stage's port may import its type, from ports.ts alone",
    "src/probes/a.ts",
    'import type { P } from "../sync/ports.ts";\nimport { p } from "../sync/ports.ts";\nimport type { Q } from "../sync/passes.ts";',
    [
      "src/probes/a.ts:2: probes must not import sync; declare a port in src/probes instead",
      "src/probes/a.ts:3: probes must not import sync; declare a port in src/probes instead",
    ],
  ],
  ["so may api", "src/api/a.ts", 'import type { P } from "../sync/ports.ts";', []],
  [
    "imports do not point up",
    "src/lib/a.ts",
    'import { x } from "../pod/x.ts";',
    ["src/lib/a.ts:1: lib must not import pod"],
  ],
  [
    "only main knows the providers",
    "src/kubelet/kubelet.ts",
    'import { x } from "../providers/cri/x.ts";',
    ["src/kubelet/kubelet.ts:1: kubelet must not import providers; only src/main.ts knows the providers"],
  ],
  [
    "main may import all",
    "src/main.ts",
    'import { x } from "../providers/index.ts";\nconst k = await import("./kubelet.ts");',
    [],
  ],
  [
    "providers stay off the pipeline",
    "providers/cri/a.ts",
    'import { x } from "../../src/runtime/x.ts";\nimport { y } from "../../src/lib/y.ts";\nimport { z } from "../local/z.ts";',
    ["providers/cri/a.ts:1: providers must not import runtime"],
  ],
  [
    "only the kubelet API and the providers stream",
    "src/sync/a.ts",
    'import { x } from "../streams/x.ts";',
    ["src/sync/a.ts:1: sync must not import streams; declare a port in src/sync instead"],
  ],
  [
    "configuration is imported by type alone",
    "src/node/a.ts",
    'import type { C } from "../config/c.ts";\nimport { d } from "../config/d.ts";',
    ["src/node/a.ts:2: node must not import config; declare a port in src/node instead"],
  ],
  [
    "product code does not reach into tests",
    "src/lib/a.ts",
    'import { x } from "../../test/fakes/x.ts";',
    ["src/lib/a.ts:1: ../../test/fakes/x.ts lies outside src and providers"],
  ],
  [
    "client-node is a value to api alone",
    "src/pod/a.ts",
    'import type { V1Pod } from "@kubernetes/client-node";\nimport { KubeConfig } from "@kubernetes/client-node/dist/config.js";',
    ["src/pod/a.ts:2: only api imports @kubernetes/client-node as a value; use import type or a seam"],
  ],
  [
    "a new folder must be in the table",
    "src/extras/a.ts",
    'import { x } from "../lib/x.ts";',
    ["src/extras/a.ts:1: src/extras is not in the table of tools/import-rules.ts; add it with what it may import"],
  ],
  [
    "time and chance come from the clock",
    "src/sync/a.ts",
    "const a = Date.now();\nsetTimeout(f, 1);\nconst b = `${Math.random()}`;",
    [
      "src/sync/a.ts:1: Date.now belongs in src/lib/clock.ts; use the Clock that is given",
      "src/sync/a.ts:2: setTimeout( belongs in src/lib/clock.ts; use the Clock that is given",
      "src/sync/a.ts:3: Math.random belongs in src/lib/clock.ts; use the Clock that is given",
    ],
  ],
  ["the clock itself may read the time", "src/lib/clock.ts", "const a = Date.now();", []],
  ["a given date is no reading of the clock", "src/sync/a.ts", "const a = new Date(now);", []],
  [
    "timers are not imported",
    "src/sync/a.ts",
    'import { setTimeout as sleep } from "node:timers/promises";',
    ["src/sync/a.ts:1: timers come from the Clock that is given"],
  ],
  [
    "comments and texts are no code",
    "src/sync/a.ts",
    '// import { x } from "../runtime/x.ts"; Date.now()\n/* setTimeout( */ const a = "Date.now() // x";',
    [],
  ],
  ["tests may do as they like", "test/unit/a.ts", "Date.now();", []],
  ["generated code is left alone", "src/gen/cri.ts", "Date.now();", []],
];
for (const [name, path, source, faults] of cases) {
  test(name, () => assert.deepEqual(faultsOf(path, source), faults));
}

test("finds import cycles, including indirect and type-only ones", () => {
  const sources = new Map([
    ["src/a.ts", 'import { b } from "./b/b.ts";'],
    ["src/b/b.ts", 'import type { C } from "../c.ts";'],
    ["src/c.ts", 'export { a } from "./a.ts";'],
    ["src/d.ts", 'import { a } from "./a.ts";\nimport "./own.ts"; // import "./d.ts"'],
  ]);
  assert.deepEqual(circlesOf(sources), ["src/a.ts ▷ src/b/b.ts ▷ src/c.ts ▷ src/a.ts"]);
  sources.delete("src/c.ts");
  assert.deepEqual(circlesOf(sources), []);
});
