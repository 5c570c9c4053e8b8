import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";
import { examineCertificates } from "../../../src/doctor/certificates.ts";
import { examinePorts, listenersAt, socketsIn } from "../../../src/doctor/ports.ts";

const { signal } = new AbortController();

describe("doctor's port checks on graftlet's own machine", () => {
  const server = createServer();
  before(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve)));
  after(() => server.close());
  const said = async (port: number, runner: number | undefined, address = "127.0.0.1", look = listenersAt) => {
    const wanted = { of: "page", address, port, addressField: "pageAddress", portField: "pagePort" };
    const [finding] = await examinePorts({ ports: [wanted], runner, listenersAt: look }, signal);
    return `${finding?.level} ${finding?.message}`;
  };
  const taken = () => (server.address() as AddressInfo).port;

  test("reports a port in use by the node's graftlet or another process", async () => {
    assert.equal(
      await said(taken(), process.pid),
      `ok page, port ${taken()} on 127.0.0.1: graftlet serves it (process ${process.pid})`,
    );
    for (const runner of [undefined, process.pid + 1])
      assert.match(
        await said(taken(), runner),
        new RegExp(`^failure pagePort ${taken()} is taken on .*; process ${process.pid} \\(node\\) listens there$`),
      );
  });

  test("reports a port in use by a process that it cannot see", async () => {
    assert.equal(
      await said(taken(), process.pid, "127.0.0.1", async () => []),
      `warning page, port ${taken()} on 127.0.0.1: in use by a process that only root and graftlet's own user can see`,
    );
  });

  test("reports a free port and a foreign address", async () => {
    const free = createServer();
    await new Promise<void>((resolve) => free.listen(0, "127.0.0.1", resolve));
    const { port } = free.address() as AddressInfo;
    await new Promise((resolve) => free.close(resolve));
    assert.equal(await said(port, undefined), `ok page, port ${port} on 127.0.0.1: free`);
    assert.match(await said(port, 7), /^warning .*: free, although graftlet \(process 7\) runs the node/);
    assert.match(
      await said(port, undefined, "192.0.2.1"),
      /^failure pageAddress "192\.0\.2\.1" is not an address of this/,
    );
  });

  test("finds the listening sockets of a port in the table", () => {
    const line = (local: string, state: string, inode: number) =>
      `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000     0        0 ${inode} 1 0 100 0 0 10 0`;
    const table = ["  sl  local_address", line("0100007F:0050", "0A", 11), line("00000000:0050", "01", 12)];
    assert.deepEqual(socketsIn([...table, line("00000000:1050", "0A", 13)].join("\n"), 80), ["socket:[11]"]);
  });
});

describe("doctor's checks of a node's certificates", () => {
  const dir = mkdtempSync(join(tmpdir(), "graftlet-doctor-"));
  after(() => rmSync(dir, { recursive: true }));

  test("reports missing, valid, expiring, expired and invalid certificates", async () => {
    const file = join(dir, "kubelet.crt");
    const said = async (now: number) => {
      const [finding] = await examineCertificates(
        [{ of: "the node's", file, remedy: "renew it" }],
        { now: () => now },
        signal,
      );
      return `${finding?.level} ${finding?.message}`;
    };
    assert.match(await said(0), /^ok none yet/);
    const from = Date.parse("2030-01-01T00:00:00Z");
    const { certificate } = await makeSelfSigned("n", [], from);
    writeFileSync(file, certificate);
    const yearMs = 365 * 24 * 3600_000;
    assert.match(await said(from + 1), /^ok the node's: valid until 2031-01-01T/);
    assert.match(
      await said(from + yearMs * 0.95),
      /^warning the node's: valid until .*, but not renewed yet: renew it$/,
    );
    assert.match(await said(from + yearMs * 2), /^failure the node's: was valid until .*: renew it$/);
    assert.match(await said(from - yearMs), /^failure the node's: not valid before 20.*: set the clocks by NTP$/);
    writeFileSync(file, "nothing");
    assert.match(await said(from), /^failure the node's, .*kubelet\.crt: /);
  });
});
