import assert from "node:assert/strict";
import { test } from "node:test";
import { refusalOf, run } from "./files.ts";

const file = (fields: string) => ({
  "/n.yaml": `apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\n${fields}\nnodes: [{name: a}, {name: b, port: 4194}]\n`,
});
const several = (fields: string, flags: readonly string[] = []) =>
  run(["--nodes=/n.yaml", ...flags], file(fields)).page;

test("serves no page without a port; the default address is loopback", () => {
  assert.equal(run([]).page, undefined);
  assert.equal(several(""), undefined);
  assert.deepEqual(run(["--page-port=4194"]).page, { address: "127.0.0.1", port: 4194 });
  assert.deepEqual(several("pagePort: 4195"), { address: "127.0.0.1", port: 4195 });
  assert.deepEqual(run(["--page-port=4194", "--page-address=::"]).page, { address: "::", port: 4194 });
});

test("the page's flags override the fields of the nodes' file", () => {
  const flags = ["--page-port=4196", "--page-address=::1"];
  assert.deepEqual(several("pagePort: 4195\npageAddress: 192.0.2.7", flags), { address: "::1", port: 4196 });
  assert.equal(several("pagePort: 4195", ["--page-port=0"]), undefined);
});

test("refuses a page port that is in use or invalid", () => {
  const refused = (fields: string) => refusalOf(["--nodes=/n.yaml"], file(fields));
  assert.equal(refused("pagePort: 4194"), "/n.yaml: pagePort is 4194: node b listens on that port; use another one");
  assert.equal(refused("pagePort: 10248"), "/n.yaml: pagePort is 10248: healthzPort uses that port; use another one");
  assert.match(refusalOf(["--page-port=10250"]), /^--page-port is 10250: node .* listens on that port/);
  assert.equal(refusalOf(["--page-port=70000"]), "--page-port is 70000: use a port from 1 to 65535, or 0 for none");
  assert.match(refusalOf(["--page-address=here"]), /^--page-address is "here": expected an IP address/);
});
