import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import { filesIo, run, sentenceOf } from "./files.ts";

function asked(argv: readonly string[], env: Record<string, string> = {}) {
  const parsed = parseCommandLine(["status", ...argv], filesIo({}, env));
  assert.ok(parsed.kind === "status");
  return parsed;
}

test("the status socket comes from the flag, the environment or the certificate directory", () => {
  assert.deepEqual(asked([]), {
    kind: "status",
    socket: "/var/lib/kubelet/pki/status.sock",
    node: undefined,
    output: "text",
  });
  const told = asked(["--node=a", "-o", "json", "--nodes=/gone.yaml", "--provider-config=/gone", "--cert-dir=/c/"]);
  assert.deepEqual([told.socket, told.node, told.output], ["/c/status.sock", "a", "json"]);
  const env = { GRAFTLET_STATUS_SOCKET: "/e/s" };
  assert.equal(asked(["--cert-dir=/c"], env).socket, "/e/s");
  assert.equal(asked(["--status-socket=/f/s"], env).socket, "/f/s");
  assert.equal(run([]).statusSocket, "/var/lib/kubelet/pki/status.sock");
  assert.equal(run(["--status-socket="]).statusSocket, undefined);
  const file = "apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\nnodes: [{name: a}]\n";
  assert.equal(run(["--nodes=/n.yaml", "--status-socket=/f/s"], { "/n.yaml": file }).statusSocket, "/f/s");
});

test("refuses invalid status flags in one sentence", () => {
  assert.match(
    sentenceOf(() => asked(["--status-socket="])),
    /--status-socket .*set the socket of the running graftlet/,
  );
  assert.match(
    sentenceOf(() => asked(["--status-socket=s"])),
    /--status-socket is "s": use an absolute path/,
  );
  assert.match(
    sentenceOf(() => asked(["-o", "yaml"])),
    /--output is "yaml": expected text or json/,
  );
});
