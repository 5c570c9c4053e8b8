import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { sshProvider } from "../../providers/ssh/provider.ts";
import { createReverseListeners } from "../../providers/ssh/reverse/listeners.ts";
import { type Finding } from "../../src/doctor/findings.ts";
import { examineTarget } from "../../src/doctor/target.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import { sshBench } from "./ssh-bench.ts";

describe("graftlet doctor against a machine with an sshd", { timeout: 180_000 }, () => {
  const { rig } = sshBench("doctor");
  const clock = systemClock();

  const examined = async (fields: Readonly<Record<string, unknown>> = {}, kubelet: object = {}) => {
    const { host, port, user, login, trust } = rig().config();
    assert.ok(login.kind === "key" && trust.kind === "knownHosts");
    const trusted = fields["hostKeyFingerprints"] === undefined && { knownHostsFile: trust.file };
    const known = { host, port, user, privateKeyFile: login.privateKeyFile, ...trusted };
    await using target = await sshProvider(createReverseListeners())({
      config: { ...known, ...fields },
      containerRuntimeEndpoint: "",
      imageServiceEndpoint: "",
      requestTimeoutMs: 10_000,
      containerLogs: { maxSizeBytes: 1, maxFiles: 2 },
      nodeName: "edge",
      clock,
      log: silentLog(),
    });
    return await examineTarget(
      {
        target,
        nodeName: "edge",
        rootDir: "/var/lib/kubelet/of-nobody",
        kubelet: {
          failSwapOn: false,
          failCgroupV1: false,
          cgroupDriver: "cgroupfs",
          resolvConf: "/etc/resolv.conf",
          ...kubelet,
        },
        refuseOtherAgent: async () => undefined,
        clock,
      },
      AbortSignal.timeout(60_000),
    );
  };
  const of = (findings: readonly Finding[], check: string) => findings.filter((finding) => finding.check === check);
  const worst = (findings: readonly Finding[], check: string) =>
    of(findings, check).find(({ level }) => level !== "ok") ?? of(findings, check)[0];

  test("changes nothing, and reports a missing runtime", async () => {
    const listing = () =>
      rig().mustInside([
        "sh",
        "-c",
        "find /etc /run /var/lib /var/log /root /home -xdev -printf '%p %m %s %T@\\n' | sort",
      ]);
    const before = await listing();
    const findings = await examined();
    assert.equal(await listing(), before);
    assert.deepEqual(
      findings.filter(({ level }) => level === "failure").map(({ check }) => check),
      ["machine", "runtime"],
    );
    assert.match(worst(findings, "runtime")?.message ?? "", /containerd\.sock/);
    assert.equal(worst(findings, "machine")?.reason, "TargetAddressUnknown");
    assert.equal(worst(findings, "rights")?.level, "ok");
    assert.match(worst(findings, "pods' network")?.message ?? "", /tunneled/);
  });

  test("reports missing privileges, and settings that conflict with the machine", async () => {
    const findings = await examined({ user: "plain", sudo: "never" }, { failCgroupV1: true });
    assert.ok(of(findings, "rights").length > 0);
    assert.ok(
      of(findings, "rights").every(({ level, reason }) => level === "warning" && reason === "InsufficientPrivileges"),
    );
    assert.equal(worst(findings, "cgroups")?.reason, "CgroupV1");
  });

  test("reports name servers that pods cannot reach", async () => {
    const say = (text: string) => rig().mustInside(["sh", "-c", "cat > /etc/resolv.conf"], { stdin: text });
    await say("nameserver 127.0.0.53\n");
    assert.match(
      worst(await examined(), "DNS")?.message ?? "",
      /contains 127\.0\.0\.53, which pods cannot reach: set another/,
    );
    await say("search nowhere\n");
    assert.match(worst(await examined(), "DNS")?.message ?? "", /contains no name server/);
  });

  test("reports a kernel that does not forward packets", async () => {
    const forward = (value: 0 | 1) => rig().mustInside(["sysctl", "-w", `net.ipv4.ip_forward=${value}`]);
    await forward(0);
    const said = worst(await examined(), "kernel");
    assert.equal(said?.level, "warning");
    assert.match(said.message, /^net\.ipv4\.ip_forward is 0/);
    await forward(1);
    assert.match(worst(await examined(), "kernel")?.message ?? "", /^seccomp.* IP forwarding is on$/);
  });

  test("explains whether pods are isolated by configuration or because the service tunnel cannot work", async () => {
    const isolated = await examined({ network: "isolated" });
    assert.equal(worst(isolated, "pods' network")?.reason, "PodNetworkIsolated");
    const unable = worst(await examined({ user: "plain", sudo: "never" }), "pods' network");
    assert.equal(unable?.reason, "PodNetworkIsolated");
    assert.match(unable?.message ?? "", /isolated: .*nft does not work on the target: install nftables/);
  });

  test("checks the requirements of the service tunnel", async () => {
    assert.match(
      worst(await examined({ network: "tunneled" }), "pods' network")?.message ?? "",
      /the target meets the requirements/,
    );
    const unable = await examined({ network: "tunneled", user: "plain", sudo: "never" });
    assert.equal(worst(unable, "pods' network")?.reason, "ServiceTunnelUnavailable");
  });

  test("while the machine is unreachable, reports only why the link is down", async () => {
    const wrongKey: Readonly<Record<string, unknown>> = { hostKeyFingerprints: [`SHA256:${"A".repeat(43)}`] };
    const [finding, ...others] = await examined(wrongKey);
    assert.deepEqual([finding?.check, finding?.level, finding?.reason], ["link", "failure", "HostKeyMismatch"]);
    assert.deepEqual(others, []);
    const [refused] = await examined({ user: "nobody-there" });
    assert.equal(refused?.reason, "LoginRefused");
    await rig().killSshd();
    const [gone] = await examined();
    assert.ok(
      gone?.level === "failure" && ["LinkDown", "ConnectionRejected"].includes(gone.reason ?? ""),
      String(gone?.reason),
    );
    await rig().startSshd();
  });
});
