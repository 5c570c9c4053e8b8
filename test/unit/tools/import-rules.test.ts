import assert from "node:assert/strict";
import { test } from "node:test";
import { circlesOf, faultsOf } from "../../../tools/import-rules.ts";

const cases: readonly [name: string, path: string, source: string, faults: readonly string[]][] = [
  [
    "a stage may import lower folders",
    "src/sync/a.ts",
    'import { x } from "../pod/x.ts";\nimport type { Pod } from "../objects.ts";',
    [],
  ],
  ["a stage may import itself", "src/sync/a.ts", 'export * from "./b.ts";', []],
  [
    "a stage must not import another stage",
    "src/sync/a.ts",
    'import { x } from "../lib/x.ts";\nimport {\n  y,\n} from "../runtime/y.ts";',
    ["src/sync/a.ts:2: sync must not import runtime; declare a port in src/sync instead"],
  ],
  [
    "a stage must not import another stage by type, by export or lazily",
    "src/status/a.ts",
    'import type { x } from "../sync/x.ts";\nexport { y } from "../volumes/y.ts";\nconst z = await import("../probes/z.ts");',
    [
      "src/status/a.ts:1: status must not import sync; declare a port in src/status instead",
      "src/status/a.ts:2: status must not import volumes; declare a port in src/status instead",
      "src/status/a.ts:3: status must not import probes; declare a port in src/status instead",
    ],
  ],
  [
    "metrics may import types of other stages, but not values",
    "src/metrics/a.ts",
    'import type { M } from "../sync/x.ts";\nimport type { N } from "../server/y.ts";\nimport { z } from "../sync/z.ts";',
    ["src/metrics/a.ts:3: metrics must not import sync; declare a port in src/metrics instead"],
  ],
  [
    "a stage that implements another one's port may import its type from ports.ts only",
    "src/probes/a.ts",
    'import type { P } from "../sync/ports.ts";\nimport { p } from "../sync/ports.ts";\nimport type { Q } from "../sync/passes.ts";',
    [
      "src/probes/a.ts:2: probes must not import sync; declare a port in src/probes instead",
      "src/probes/a.ts:3: probes must not import sync; declare a port in src/probes instead",
    ],
  ],
  [
    "api may import the type of a stage's port from ports.ts",
    "src/api/a.ts",
    'import type { P } from "../sync/ports.ts";',
    [],
  ],
  [
    "lower folders must not import upper ones",
    "src/lib/a.ts",
    'import { x } from "../pod/x.ts";',
    ["src/lib/a.ts:1: lib must not import pod"],
  ],
  [
    "only main.ts may import the providers' index",
    "src/kubelet/kubelet.ts",
    'import { x } from "../providers/cri/x.ts";',
    ["src/kubelet/kubelet.ts:1: kubelet must not import providers; only src/main.ts knows the providers"],
  ],
  [
    "main.ts may import all folders",
    "src/main.ts",
    'import { x } from "../providers/index.ts";\nconst k = await import("./kubelet.ts");',
    [],
  ],
  [
    "providers must not import stages",
    "providers/cri/a.ts",
    'import { x } from "../../src/runtime/x.ts";\nimport { y } from "../../src/lib/y.ts";\nimport { z } from "../local/z.ts";',
    ["providers/cri/a.ts:1: providers must not import runtime"],
  ],
  [
    "only the kubelet API and the providers may import streams",
    "src/sync/a.ts",
    'import { x } from "../streams/x.ts";',
    ["src/sync/a.ts:1: sync must not import streams; declare a port in src/sync instead"],
  ],
  [
    "stages may import types of the configuration only",
    "src/node/a.ts",
    'import type { C } from "../config/c.ts";\nimport { d } from "../config/d.ts";',
    ["src/node/a.ts:2: node must not import config; declare a port in src/node instead"],
  ],
  [
    "product code must not import tests",
    "src/lib/a.ts",
    'import { x } from "../../test/fakes/x.ts";',
    ["src/lib/a.ts:1: ../../test/fakes/x.ts lies outside src and providers"],
  ],
  [
    "only api may import values of client-node",
    "src/pod/a.ts",
    'import type { V1Pod } from "@kubernetes/client-node";\nimport { KubeConfig } from "@kubernetes/client-node/dist/config.js";',
    ["src/pod/a.ts:2: only api imports @kubernetes/client-node as a value; use import type or a seam"],
  ],
  [
    "a new folder must be listed in the table",
    "src/extras/a.ts",
    'import { x } from "../lib/x.ts";',
    ["src/extras/a.ts:1: src/extras is not in the table of tools/import-rules.ts; add it with what it may import"],
  ],
  [
    "only the clock may use time, timers and random numbers",
    "src/sync/a.ts",
    "const a = Date.now();\nsetTimeout(f, 1);\nconst b = `${Math.random()}`;",
    [
      "src/sync/a.ts:1: Date.now belongs in src/lib/clock.ts; use the Clock that is given",
      "src/sync/a.ts:2: setTimeout( belongs in src/lib/clock.ts; use the Clock that is given",
      "src/sync/a.ts:3: Math.random belongs in src/lib/clock.ts; use the Clock that is given",
    ],
  ],
  ["the clock itself may read the time", "src/lib/clock.ts", "const a = Date.now();", []],
  ["a Date of a given time is allowed", "src/sync/a.ts", "const a = new Date(now);", []],
  [
    "timers must not be imported",
    "src/sync/a.ts",
    'import { setTimeout as sleep } from "node:timers/promises";',
    ["src/sync/a.ts:1: timers come from the Clock that is given"],
  ],
  [
    "comments and strings are ignored",
    "src/sync/a.ts",
    '// import { x } from "../runtime/x.ts"; Date.now()\n/* setTimeout( */ const a = "Date.now() // x";',
    [],
  ],
  ["tests are not restricted", "test/unit/a.ts", "Date.now();", []],
  ["generated code is not checked", "src/gen/cri.ts", "Date.now();", []],
];
for (const [name, path, source, faults] of cases) {
  test(`import rules: ${name}`, () => assert.deepEqual(faultsOf(path, source), faults));
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
