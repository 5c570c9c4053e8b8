import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { leastCpuMs, promptMs } from "../../harness/cpu-time.ts";
import { graftletVersion, kubeletVersion } from "../../../src/version.ts";

const root = join(import.meta.dirname, "../../..");

test("the bundle runs on its own, responds in under 0.3 s, and includes the licences of its packages", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-build-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const node = (...argv: readonly string[]): string =>
    execFileSync(process.execPath, argv, { cwd: folder, encoding: "utf8", env: { PATH: process.env["PATH"] } });
  node(join(root, "tools/build.ts"), join(root, "src/main.ts"), folder);
  const built = join(folder, "graftlet.mjs");
  assert.equal(node(built, "--version").trim(), `Kubernetes ${kubeletVersion} (graftlet ${graftletVersion})`);
  assert.match(node(built, "--help"), /--kubeconfig FILE/);
  // A thread of it is the thread that reads manifests, which is in the same file.
  const thread = new Worker(built);
  t.after(() => thread.terminate());
  thread.postMessage(
    { text: "kind: Secret\napiVersion: v1\n", origin: { nodeName: "n", of: { file: "/m" } }, lists: false },
    [],
  );
  const [answer] = (await once(thread, "message")) as [{ fault: string }];
  assert.match(answer.fault, /^its kind is "Secret"/);
  // Lines of the text format name lines of the source, not of the built file.
  const own = [`--pod-manifest-path=${folder}`, `--cert-dir=${folder}`];
  const endsAtOnce = ["--provider=none-such", ...own, "--hostname-override=n"];
  const { stderr } = spawnSync(process.execPath, [built, "--logging-format=text", ...endsAtOnce], { encoding: "utf8" });
  const source = readFileSync(join(root, "src/process/nodes.ts"), "utf8").split("\n");
  const line = 1 + source.findIndex((text) => text.includes("log.info(") && text.includes("graftlet is starting"));
  const places = readFileSync(built, "utf8");
  for (const name of ["src/api/absent.ts", "src/status/delivery.ts"]) {
    const lines = readFileSync(join(root, name), "utf8").split("\n");
    assert.ok(places.includes(`"${basename(name)}:${1 + lines.findIndex((text) => text.includes("log["))}"`), name);
  }
  assert.match(stderr, new RegExp(` nodes\\.ts:${line}\\] "graftlet is starting" `));
  const spentMs = await leastCpuMs([process.execPath, built, "--help"]);
  const allowedMs = await promptMs();
  assert.ok(spentMs < allowedMs, `it took ${spentMs} ms, where ${allowedMs} ms are allowed`);
  const text = readFileSync(built, "utf8");
  const first =
    "#!/usr/bin/env -S MALLOC_ARENA_MAX=2 node --max-semi-space-size=1 --no-parallel-scavenge --heap-growing-percent=100\n";
  assert.ok(text.startsWith(first));
  // An import of node:http loads Node's fetch, which takes megabytes in every process.
  assert.doesNotMatch(text, /from ?"(node:)?http"/);
  // Node keeps a file of other characters in twice the memory.
  assert.equal(Buffer.byteLength(text), text.length, "ASCII alone");
  const notices = readFileSync(join(folder, "THIRD-PARTY-NOTICES.txt"), "utf8");
  for (const name of ["@grpc/grpc-js", "pino", "yaml"]) assert.match(notices, new RegExp(`^${name} \\d`, "m"));
});
