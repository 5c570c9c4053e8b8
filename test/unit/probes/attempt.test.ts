import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import type { Container, Probe } from "../../../src/objects.ts";
import { attemptProbe } from "../../../src/probes/attempt.ts";
import { goDurationOfSeconds } from "../../../src/probes/outcome.ts";
import { resolvePort } from "../../../src/pod/resolve-port.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { loopbackHost } from "./loopback.ts";

interface Ran {
  readonly argv: readonly string[];
  readonly timeoutSeconds: number;
}

/** Runs one exec attempt; each execSync returns the next of `answers` (the last one repeats). */
async function attempt(
  probe: Probe,
  answers: readonly ((ran: Ran) => { exitCode: number; stdout?: string; stderr?: string })[],
  container: Container = aContainer("c"),
  { stands = true, losses = () => 0 }: { stands?: boolean; losses?: () => number } = {},
) {
  const ran: Ran[] = [];
  const told: string[] = [];
  const references: (string | undefined)[] = [];
  const result = await attemptProbe(
    {
      host: loopbackHost(),
      reachability: { answers: async () => stands, losses },
      clock: fakeClock(),
      events: {
        event: (about, type, reason, message) => {
          references.push(about.fieldPath);
          told.push(`${type} ${reason} ${message}`);
        },
      },
      runtime: {
        async execSync(_id, argv, timeoutSeconds) {
          ran.push({ argv, timeoutSeconds });
          const answer = answers[ran.length - 1] ?? answers.at(-1);
          assert.ok(answer, "the script has no answer left");
          const { exitCode, stdout = "", stderr = "" } = answer({ argv, timeoutSeconds });
          return { exitCode, stdout: Buffer.from(stdout), stderr: Buffer.from(stderr) };
        },
      },
    },
    {
      kind: "readiness",
      pod: aPod({ containers: [container] }),
      container,
      probe,
      containerId: "id",
      podIP: "10.0.0.7",
    },
    never,
  );
  return { result, ran, told, references };
}

const exec = (...command: string[]): Probe => ({ exec: { command } });
const broken = () => {
  throw new CodedError("unknown", "no such task");
};

test("exec: exit code 0 is a success without an event", async () => {
  const { result, ran, told } = await attempt({ ...exec("true"), timeoutSeconds: 4 }, [
    () => ({ exitCode: 0, stdout: "fine" }),
  ]);
  assert.deepEqual(
    { result, ran, told },
    { result: "Success", ran: [{ argv: ["true"], timeoutSeconds: 4 }], told: [] },
  );
});

test("exec: any other exit code fails with 10 KiB of stdout and stderr in a container event", async () => {
  const { result, told, references } = await attempt(exec("check"), [
    () => ({ exitCode: 2, stdout: "out ", stderr: "err" }),
  ]);
  assert.deepEqual(
    { result, told, references },
    {
      result: "Failure",
      told: ["Warning Unhealthy Readiness probe failed: out err"],
      references: ["spec.containers{c}"],
    },
  );
  const long = await attempt(exec("check"), [() => ({ exitCode: 1, stdout: "x".repeat(20_000) })]);
  assert.equal(long.told[0]?.length, "Warning Unhealthy Readiness probe failed: ".length + 10_240);
});

test("a failure while the target does not answer gives no verdict and no event", async () => {
  const timedOut = () => {
    throw new CodedError("deadline_exceeded", "too late");
  };
  for (const answer of [timedOut, broken, () => ({ exitCode: 1 })]) {
    const { result, told } = await attempt(exec("check"), [answer], aContainer("c"), { stands: false });
    assert.deepEqual({ result, told }, { result: undefined, told: [] });
  }
  const { result } = await attempt(exec("check"), [() => ({ exitCode: 0 })], aContainer("c"), { stands: false });
  assert.equal(result, "Success", "a success has reached the container");
});

test("a failure while a connection is lost gives no verdict, even if the target answers on another", async () => {
  let losses = 0;
  const lose = () => {
    losses += 1;
    throw new CodedError("unavailable", "connection lost");
  };
  const { result, told } = await attempt(exec("check"), [lose], aContainer("c"), { losses: () => losses });
  assert.deepEqual({ result, told }, { result: undefined, told: [] });
});

test("exec: a timeout is a failure", async () => {
  const { result, told } = await attempt(exec("sh", "-c", "sleep 9"), [
    () => {
      throw new CodedError("deadline_exceeded", "too late");
    },
  ]);
  assert.equal(result, "Failure");
  assert.deepEqual(told, [
    'Warning Unhealthy Readiness probe failed: command timed out: "sh -c sleep 9" timed out after 1s',
  ]);
});

test("a probe that errors is tried three times, then does not count", async () => {
  const failing = await attempt(exec("x"), [broken]);
  assert.equal(failing.result, undefined);
  assert.equal(failing.ran.length, 3);
  assert.deepEqual(failing.told, [
    "Warning Unhealthy Readiness probe errored and resulted in unknown state: rpc error: code = Unknown desc = no such task",
  ]);
  const recovering = await attempt(exec("x"), [broken, broken, () => ({ exitCode: 0 })]);
  assert.deepEqual({ result: recovering.result, told: recovering.told }, { result: "Success", told: [] });
});

test("an unresolvable port is a probe error", async () => {
  const { result, told } = await attempt({ tcpSocket: { port: "web" } }, []);
  assert.equal(result, undefined);
  assert.deepEqual(told, [
    'Warning Unhealthy Readiness probe errored and resulted in unknown state: strconv.Atoi: parsing "web": invalid syntax',
  ]);
});

test("exec: $(VAR) is expanded from the spec's literal env values", async () => {
  const env = [
    { name: "A", value: "1" },
    { name: "FROM", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } },
  ];
  const { ran } = await attempt(
    exec("echo", "$(A) $(FROM) $(NONE) $$(A)"),
    [() => ({ exitCode: 0 })],
    aContainer("c", { env }),
  );
  assert.deepEqual(ran[0]?.argv, ["echo", "1  $(NONE) $(A)"]);
});

test("exec: a command that exceeds the argument limit after expansion is not run and gives no verdict", async () => {
  const env = [{ name: "A", value: "x".repeat(100_000) }];
  for (const [words, why] of [
    [["a", "$(A)$(A)"], /exec\.command\[1\] of the probe is longer than 131072 bytes/],
    [Array<string>(50_000).fill("$(A)"), /the arguments of the probe command exceed 2097152 bytes in total/],
  ] as const) {
    const { result, ran, told } = await attempt(exec(...words), [() => ({ exitCode: 0 })], aContainer("c", { env }));
    assert.deepEqual([result, ran], [undefined, []]);
    assert.match(told[0] ?? "", why);
  }
});

test("resolves ports by number, by name, and by numeric string", () => {
  const container = aContainer("c", { ports: [{ name: "web", containerPort: 8080 }] });
  assert.equal(resolvePort(80, container), 80);
  assert.equal(resolvePort("web", container), 8080);
  assert.equal(resolvePort("81", container), 81);
  assert.throws(() => resolvePort(0, container), { message: "invalid port number: 0" });
  assert.throws(() => resolvePort(65536, container), { message: "invalid port number: 65536" });
});

test("formats durations as Go does", () => {
  assert.deepEqual([1, 59, 60, 90, 3600, 3661].map(goDurationOfSeconds), [
    "1s",
    "59s",
    "1m0s",
    "1m30s",
    "1h0m0s",
    "1h1m1s",
  ]);
});
