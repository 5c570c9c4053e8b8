import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type Lab, startLab } from "../harness/lab.ts";
import { providerUnderTest } from "../harness/runtime-daemon.ts";
import { waitFor } from "../harness/wait.ts";

/** Node log query. Only a target with systemd has a journal; on the others services log to files alone.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#log-query */
let lab: Lab;
before(async () => {
  lab = await startLab("node-logs", { config: { enableSystemLogQuery: true } });
});
after(() => lab?.[Symbol.asyncDispose]());

const pathOf = (query: string) => `/api/v1/nodes/${lab.cluster.nodeName}/proxy/logs/${query}`;
const queried = (query: string) => lab.cluster.mustKubectl(["get", "--raw", pathOf(query)]);

async function refused(query: string): Promise<string> {
  const { code, stderr } = await lab.cluster.kubectl(["get", "--raw", pathOf(query)]);
  assert.notEqual(code, 0, query);
  return stderr;
}

test("log query: kubectl gets files in /var/log by service name, and nothing outside that directory", async () => {
  const { cluster } = lab;
  await cluster.runInside(["mkdir", "-p", "/var/log/shop"]);
  await cluster.runInside(["sh", "-c", "echo sold >/var/log/shop/shop.log; echo paid >/var/log/till.log"]);
  assert.equal(await queried("?query=shop&query=till"), "sold\npaid\n");
  assert.equal(await queried("?query=shop/shop.log"), "sold\n");
  assert.equal(await queried("?query=/till.log"), "paid\n");
  assert.equal(await queried("?query=nowhere"), "\nlog not found for nowhere\n");
  assert.match(
    await queried("?query=shop&tailLines=1"),
    /options present and query resolved to log files for \[shop\]/,
  );
  assert.match(await refused("?query=../../etc/shadow"), /path escapes from parent/);
  await cluster.runInside(["ln", "-sf", "/etc/shadow", "/var/log/leak.log"]);
  assert.match(await refused("?query=/leak.log"), /path escapes from parent/);
  assert.doesNotMatch(await queried("?query=leak"), /root:/);
  assert.match(await refused("?query=--file=x"), /input contains unsupported characters/);
});

const isSystemd = providerUnderTest().includes("systemd") || providerUnderTest().includes("guest");

if (isSystemd)
  test("log query: kubectl gets the journal of services, by boot, time, lines and pattern", async () => {
    const { cluster } = lab;
    const writes = ["systemd-run", "--wait", "--quiet", "--unit=nginx", "sh", "-c", "seq -f 'error %g' 1 20"];
    await cluster.runInside(writes);
    await waitFor("the journal to have the unit", async () => /error 20$/m.test(await queried("?query=nginx")));
    const errors = (text: string) => [...text.matchAll(/error (\d+)$/gm)].map(([, count]) => Number(count));
    assert.deepEqual(
      errors(await queried("?query=nginx&boot=0&pattern=error+1.")),
      [10, 11, 12, 13, 14, 15, 16, 17, 18, 19],
    );
    // journalctl prints the newest line first if it looks for the last ones of a pattern.
    assert.deepEqual(errors(await queried("?query=nginx&pattern=error&tailLines=2")), [20, 19]);
    // The last lines are of systemd itself, and belong to the unit too.
    assert.equal((await queried("?query=nginx&tailLines=20")).trimEnd().split("\n").length, 20);
    assert.equal(errors(await queried("?query=nginx&boot=0&pattern=error")).length, 20);
    const later = encodeURIComponent(new Date(Date.now() + 3_600_000).toISOString());
    const earlier = encodeURIComponent(new Date(Date.now() - 3_600_000).toISOString());
    assert.deepEqual(errors(await queried(`?query=nginx&sinceTime=${later}`)), []);
    assert.equal(errors(await queried(`?query=nginx&sinceTime=${earlier}&untilTime=${later}`)).length, 20);
    // The machine has booted once, so journalctl says that there is no boot before.
    assert.match(await queried("?query=nginx&boot=-5"), /boot/i);
    assert.doesNotMatch(await queried("?query=nginx&pattern=--directory%3D/etc"), /error/);
    assert.equal(await queried("?query=nowhere"), "\nlog not found for nowhere\n");
  });
