import assert from "node:assert/strict";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import type { LinkState } from "../../providers/ssh/connection/link-state.ts";
import type { SshHost } from "../../providers/ssh/host.ts";
import { must } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";
import { sshBench } from "./ssh-bench.ts";
import { argvOf } from "../harness/argv.ts";

/** Keys as ssh-keygen makes them, by name. */
const kinds = { ed25519: ["ed25519"], rsa: ["rsa"], ecdsa: ["ecdsa"], ecdsa521: ["ecdsa", "-b", "521"] } as const;
const kindNames = Object.keys(kinds);
/** Each with an authority of another type. */
const pairs = kindNames.map((name, index) => [name, kindNames.at(index - 1) ?? name] as const);
const always = ["-V", "always:forever"];

describe("OpenSSH certificates", () => {
  const { rig, hostOf, downOf, isUp } = sshBench("certificates");
  const file = (name: string) => join(rig().outside, name);
  const publicKey = (name: string) =>
    readFileSync(file(`${name}.pub`), "utf8")
      .split(" ")
      .slice(0, 2)
      .join(" ");
  const fingerprint = async (name: string) => (await must(["ssh-keygen", "-lf", file(`${name}.pub`)])).split(" ")[1];

  /** Has an authority certify a key. @returns the certificate's file. */
  const certify = async (key: string, options: readonly string[], authority = "ca-ed25519") => {
    await must(["ssh-keygen", "-q", "-s", file(authority), "-I", "test", ...options, file(`${key}.pub`)]);
    return file(`${key}-cert.pub`);
  };
  const login = (key: string) => ({ privateKeyFile: file(key), certificateFile: file(`${key}-cert.pub`) });
  const putInside = async (name: string, text: string) => {
    // sshd reads names from no file in a folder where others may write.
    const path = `/run/${name}`;
    await rig().mustInside(["sh", "-c", `cat > ${path} && chmod 600 ${path}`], { stdin: text });
    return path;
  };
  const trusted: string[] = [];
  /** Starts sshd with a host key and its certificate. */
  const showing = async (key: string, options: readonly string[], authority?: string) => {
    const certificate = readFileSync(await certify(key, ["-h", ...options], authority), "utf8");
    await rig().startSshd([
      ...trusted,
      `HostKey ${await putInside("host-key", readFileSync(file(key), "utf8"))}`,
      `HostCertificate ${await putInside("host-cert.pub", certificate)}`,
      "RekeyLimit 64K",
    ]);
  };
  const knownHosts = (...lines: readonly string[]) => {
    writeFileSync(file("authorities"), `${lines.join("\n")}\n`);
    return { knownHostsFile: file("authorities") };
  };
  const authority = (name = "ca-ed25519") => `@cert-authority 127.0.0.1 ${publicKey(name)}`;
  const whoAmI = async (host: SshHost) => (await host.run(argvOf(["id", "-un"]))).stdout.trim();
  const downWith = async (host: SshHost, reason: string) => {
    const is = (state: LinkState) => state.kind === "down" && state.why.reason === reason;
    await waitFor(`the link to be down: ${reason}`, () => is(host.link.state()), { everyMs: 50 });
  };
  const cut = async () => {
    await rig().killSshd();
    await rig().startSshd(trusted);
  };

  before(async () => {
    for (const [name, [type, ...bits]] of Object.entries(kinds))
      for (const key of [`user-${name}`, `host-${name}`, `ca-${name}`])
        await must(["ssh-keygen", "-q", "-t", type, ...bits, "-N", "", "-f", file(key)]);
    const keys = kindNames.map((name) => publicKey(`ca-${name}`)).join("\n");
    trusted.push(`TrustedUserCAKeys ${await putInside("authorities", `${keys}\n`)}`);
    await rig().startSshd(trusted);
  });

  test("logs in with a user certificate for each type of user key and CA key", async () => {
    for (const [name, by] of pairs) {
      assert.equal((await downOf({ privateKeyFile: file(`user-${name}`) })).why.reason, "LoginRefused");
      await certify(`user-${name}`, ["-n", "root,plain"], `ca-${by}`);
      await using host = hostOf(login(`user-${name}`));
      assert.equal(await whoAmI(host), "root");
    }
  });

  test("sshd accepts a user certificate by its principals: the user name or AuthorizedPrincipalsFile", async () => {
    await rig().startSshd(trusted);
    await certify("user-ed25519", ["-n", "plain"]);
    const { why } = await downOf(login("user-ed25519"));
    assert.equal(why.reason, "LoginRefused");
    assert.match(
      why.message,
      /check that sshd there trusts the authority of .*user-ed25519-cert\.pub .*is issued for root/,
    );
    await using plain = hostOf({ ...login("user-ed25519"), user: "plain" });
    assert.equal(await whoAmI(plain), "plain");
    await certify("user-ed25519", ["-n", "operators"]);
    await rig().startSshd([...trusted, `AuthorizedPrincipalsFile ${await putInside("principals", "operators\n")}`]);
    await using root = hostOf(login("user-ed25519"));
    assert.equal(await whoAmI(root), "root");
  });

  test("refuses an unusable user certificate before dialling, with one sentence for each reason", async () => {
    await certify("user-ed25519", ["-n", "root"]);
    const mine = login("user-ed25519");
    const nobodyThere = { port: 1 };
    const reasons = async (sentence: RegExp, fields: object = {}) => {
      const { why } = await downOf({ ...mine, ...fields, ...nobodyThere });
      assert.equal(why.reason, "CertificateInvalid");
      assert.match(why.message, sentence);
    };
    await reasons(/certificateFile cannot be read: ENOENT/, { certificateFile: file("none") });
    await reasons(/is not an OpenSSH certificate \((unexpected end of data|unsupported type|the first word)/, {
      certificateFile: file("id"),
    });
    await reasons(/is not an OpenSSH certificate .*KEY-cert\.pub/, { certificateFile: file("id.pub") });
    await reasons(/certifies the key SHA256:.*, but privateKeyFile has SHA256:/, { privateKeyFile: file("id") });
    await certify("user-ed25519", ["-n", "root", "-V", "-2h:-1h"]);
    await reasons(/expired at 20.*Z: put a new certificate into that file/);
    await certify("user-ed25519", ["-n", "root", "-V", "+1h:+2h"]);
    await reasons(/is not valid before 20.*Z: check the clocks of this machine/);
    await certify("user-ed25519", ["-h", "-n", "root"]);
    await reasons(/is a host certificate: ask its authority for a user certificate/);
  });

  test("keeps the link when its certificate expires, and uses a renewed one to reconnect", async () => {
    await rig().startSshd(trusted);
    await certify("user-ed25519", ["-n", "root", "-V", "-1m:+4s"]);
    await using host = hostOf(login("user-ed25519"));
    assert.equal(await whoAmI(host), "root");
    const until = Date.now() + 4_500;
    await waitFor("the certificate's end", () => Date.now() > until);
    assert.equal(await whoAmI(host), "root");
    await cut();
    await downWith(host, "CertificateInvalid");
    await certify("user-ed25519", ["-n", "root"]);
    await isUp(host);
    assert.equal(await whoAmI(host), "root");
  });

  test("accepts a host certificate for each type of host key and CA key", async () => {
    for (const [name, by] of pairs) {
      await showing(`host-${name}`, ["-n", "elsewhere,127.0.0.1"], `ca-${by}`);
      await using host = hostOf(knownHosts(authority(`ca-${by}`)));
      assert.equal(await whoAmI(host), "root");
    }
  });

  test("accepts a CA by its fingerprint, even next to a plain host key of another type", async () => {
    await showing("host-ed25519", ["-n", "127.0.0.1"]);
    const authorities = [await fingerprint("ca-ed25519")];
    await using byFingerprint = hostOf({ knownHostsFile: undefined, hostCertificateAuthorities: authorities });
    assert.equal(await whoAmI(byFingerprint), "root");
    const rsa = readFileSync(file("known_hosts"), "utf8").split(" ")[0];
    await using beside = hostOf(knownHosts(`${rsa} ${publicKey("host-rsa")}`, authority()));
    assert.equal(await whoAmI(beside), "root");
    // OpenSSH's own client takes it, too.
    const { port } = rig().config();
    const options = [
      `UserKnownHostsFile=${knownHosts(authority()).knownHostsFile}`,
      "StrictHostKeyChecking=yes",
      "BatchMode=yes",
    ];
    const ssh = ["ssh", "-F", "none", "-i", file("id"), "-p", String(port), ...options.flatMap((each) => ["-o", each])];
    assert.equal((await must([...ssh, "root@127.0.0.1", "id -un"])).trim(), "root");
  });

  test("refuses an invalid host certificate, with one sentence for each reason", async () => {
    const of = "ca-ed25519";
    const refusals: readonly (readonly [options: readonly string[], by: string, RegExp])[] = [
      [["-n", "elsewhere"], of, /it is for elsewhere: set host to one of its names/],
      [["-n", "127.0.0.*"], of, /it is for 127\.0\.0\.\*: set host/],
      [[], of, /it names no host/],
      [["-n", "127.0.0.1", "-V", "-2h:-1h"], of, /it expired at 20.*Z: renew it on the host/],
      [["-n", "127.0.0.1", "-V", "+1h:+2h"], of, /it is not valid before 20.*Z/],
      [["-n", "127.0.0.1", "-O", "critical:x@y=z"], of, /the unsupported critical option "x@y"/],
      [["-n", "127.0.0.1"], "ca-ecdsa", /its authority SHA256:\S+ is not trusted for this host/],
    ];
    for (const [options, by, sentence] of refusals) {
      await showing("host-ed25519", options, by);
      const { why } = await downOf(knownHosts(authority()));
      assert.equal(why.reason, "HostKeyUnknown");
      assert.match(why.message, sentence);
    }
    await showing("host-ed25519", ["-n", "127.0.0.1"]);
    for (const revoked of ["ca-ed25519", "host-ed25519"]) {
      const { why } = await downOf(knownHosts(authority(), `@revoked * ${publicKey(revoked)}`));
      assert.match(why.message, /its key or its authority SHA256:\S+ is revoked/);
    }
    await rig().startSshd(trusted);
    assert.match(
      (await downOf(knownHosts(authority()))).why.message,
      /without a certificate, and only an authority is trusted/,
    );
  });

  test("needs no certificate if the plain host key is known", async () => {
    await showing("host-ed25519", ["-n", "127.0.0.1", "-V", "-2h:-1h"]);
    const name = readFileSync(file("known_hosts"), "utf8").split(" ")[0];
    await using host = hostOf(knownHosts(authority(), `${name} ${publicKey("host-ed25519")}`));
    assert.equal(await whoAmI(host), "root");
  });

  test("keeps the link through rekeying after the host certificate has expired; a new link needs a new certificate", async () => {
    await showing("host-rsa", ["-n", "127.0.0.1", "-V", "-1m:+4s"]);
    await using host = hostOf(knownHosts(authority()));
    assert.equal(await whoAmI(host), "root");
    const until = Date.now() + 4_500;
    await waitFor("the certificate's end", () => Date.now() > until);
    const { stdout } = await host.run(argvOf(["head", "-c", "300000", "/dev/zero"]));
    assert.equal(stdout.length, 300_000);
    assert.equal(host.link.state().kind, "up");
    assert.match((await downOf(knownHosts(authority()))).why.message, /it expired at/);
  });

  test("authenticates to jump hosts with certificates, too", async () => {
    await showing("host-ecdsa", ["-n", "127.0.0.1", ...always]);
    await certify("user-ecdsa", ["-n", "plain,root"]);
    const by = { ...login("user-ecdsa"), ...knownHosts(authority()), host: "127.0.0.1" };
    const { port } = rig().config();
    await using host = hostOf({ ...by, port: 22, proxyJump: [{ ...by, port, user: "plain" }] });
    assert.equal(await whoAmI(host), "root");
    copyFileSync(file("user-rsa-cert.pub"), file("user-ecdsa-cert.pub"));
    const { why } = await downOf({ ...by, port: 22, proxyJump: [{ ...by, port, user: "plain" }] });
    assert.equal(why.reason, "CertificateInvalid");
  });
});
