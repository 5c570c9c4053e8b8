import { type SweepCase, field, key, numbered } from "./case.ts";
import { environment } from "./environment.ts";
import { dns, names, volumes } from "./names.ts";

const work = { volumes: [{ name: "work", emptyDir: {} }] };
const mounts = [{ name: "work", mountPath: "/data" }];
const written = (text: string) => [{ command: ["sh", "-c", 'printf "$0" >/data/env', text], volumeMounts: mounts }];
const fromFile = (of: string, more: object = {}) => ({
  valueFrom: { fileKeyRef: { volumeName: "work", path: "env", key: of, ...more } },
});
const fileCase = (name: string, text: string, env: readonly object[]): SweepCase => ({
  name: `env-file-${name}`,
  spec: { ...work, initContainers: written(text) },
  main: { env: numbered(env) },
});

/** The kubelet names the file's path on the node. */
const notFound = /environment variable key \\"[AB]\\" not found in file \\"env\\"/;

const files: SweepCase[] = [
  fileCase("good", "# c\\n\\nA='one'\\n  B='two words' # c\\nC='x\\ny'\\nD= 'z'\\nE=''\\nA='again'\\n", [
    fromFile("A"),
    fromFile("B"),
    fromFile("C"),
    fromFile("D", { optional: true }),
    fromFile("E", { optional: true }),
    fromFile("absent", { optional: true }),
    { value: "<$(V000) $(V003)>" },
  ]),
  fileCase(
    "odd",
    "A='\\303\\251\\001\\t# \\\\\\\\'#c\\r\\n\\t\\nB C='$(A)'\\n# c\\rd\\r\\nD='x\\r\\ny\\rz\\r\\r\\n'\\r\\nE='$(V000)'",
    [fromFile("A"), fromFile("B C"), fromFile("D"), fromFile("E")],
  ),
  fileCase("no-newline", "A='one'", [fromFile("A")]),
  fileCase("bad-after", "A='one'\\nnonsense", [fromFile("A")]),
  { ...fileCase("absent", "A='one'\\n", [fromFile("B")]), differs: notFound },
  { ...fileCase("empty", "A=''\\n", [fromFile("A")]), differs: notFound },
  fileCase("none", "", [fromFile("A", { path: "absent" })]),
  fileCase("none-optional", "", [fromFile("A", { path: "absent", optional: true })]),
  fileCase("bad", "nonsense\\nA='one'\\n", [fromFile("A")]),
  fileCase("unquoted", "A=one\\n", [fromFile("A")]),
  fileCase("open", "A='one\\n", [fromFile("A")]),
  fileCase("bytes", "A='\\377'\\nB='b'\\n", [fromFile("B")]),
];

const whole = { name: "whole", mountPath: "/whole" };
const subPath = (name: string, subPathExpr: string, env: readonly object[] = []): SweepCase => ({
  name: `sub-${name}`,
  spec: { volumes: [{ name: "whole", emptyDir: {} }] },
  main: { env, volumeMounts: [whole, { name: "whole", mountPath: "/part", subPathExpr }] },
});
const podName = { name: "POD_NAME", ...field("metadata.name") };
const subPaths: SweepCase[] = [
  subPath("name", "$(POD_NAME)", [podName]),
  subPath("deep", "a/$(POD_NAME)/b", [podName]),
  subPath("escaped", "$$(POD_NAME)", [podName]),
  subPath("unknown", "$(UNKNOWN)"),
  subPath("half", "$(POD_NAME", [podName]),
  subPath("empty", "$(EMPTY)", [{ name: "EMPTY", value: "" }]),
  subPath("empty-within", "a/$(EMPTY)/b", [{ name: "EMPTY", value: "" }]),
  subPath("absolute", "$(P)", [{ name: "P", value: "/etc" }]),
  subPath("up", "$(P)", [{ name: "P", value: "../x" }]),
  subPath("up-within", "a/$(P)/b", [{ name: "P", value: ".." }]),
  subPath("dots", "$(P)", [{ name: "P", value: "..x" }]),
  subPath("dot", "$(P)", [{ name: "P", value: "." }]),
  subPath("unicode", "$(P)", [{ name: "P", value: "é 😀\n" }]),
  subPath("odd", "$(P)", [{ name: "P", value: "-a 'b\"$(c)\\*?[" }]),
  subPath("service", "$(KUBERNETES_SERVICE_HOST)"),
  subPath("long", "$(P)", [{ name: "P", value: "l".repeat(255) }]),
  subPath("too-long", "$(P)", [{ name: "P", value: "l".repeat(256) }]),
  subPath("secret", "$(P)", [{ name: "P", ...key("secretKeyRef", "keys", "unicode") }]),
];

/** Every case. */
export const sweep: readonly SweepCase[] = [...environment, ...files, ...names, ...dns, ...volumes, ...subPaths];
