import assert from "node:assert/strict";
import { test } from "node:test";
import {
  createEnrolment,
  enrolmentSecretName,
  nodeOfEnrolment,
  readEnrolment,
  tokenData,
  withEnrolledKeys,
} from "../../../src/fleet/enrolment.ts";
import type { GraftedNode } from "../../../src/fleet/grafted-node.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { Secret } from "../../../src/objects.ts";
import { fakeClock } from "../../fakes/clock.ts";

const token = "0123456789abcdef0123456789abcdef";
const signal = new AbortController().signal;
const request = {
  nodeName: "edge-1",
  token,
  machineKey: "ssh-ed25519 MACHINE",
  hostKeyFingerprint: "SHA256:HOST",
  from: "203.0.113.7",
};
const encoded = (text: string) => Buffer.from(text).toString("base64");

function lab({ isApproved = false, annotations = {}, ssh = {} } = {}) {
  const clock = fakeClock();
  const events: string[] = [];
  const object: GraftedNode = {
    metadata: { name: "edge-1", namespace: "edge", uid: "1", annotations },
    spec: { ssh: { secretRef: { name: "login" }, reverse: {}, ...ssh } },
  };
  const login = { "ssh-privatekey": encoded("PRIVATE") };
  let version = 1;
  const secrets = new Map<string, Secret>([
    ["login", { metadata: { name: "login", namespace: "edge", uid: "2" }, data: login }],
    [
      enrolmentSecretName("edge-1"),
      {
        metadata: { name: enrolmentSecretName("edge-1"), namespace: "edge", uid: "3", resourceVersion: "1" },
        data: { ...tokenData(token, new Date(clock.now() + 60_000), isApproved) },
      },
    ],
  ]);
  const secret = () => secrets.get(enrolmentSecretName("edge-1"));
  const enrolment = createEnrolment({
    clock,
    events: { event: (_about, _type, reason, message) => void events.push(`${reason}: ${message}`) },
    object: (name) => (name === "edge-1" ? object : undefined),
    secret: (name) => secrets.get(name),
    publicKeyOf: (key) => `ssh-ed25519 of-${key}`,
    client: {
      async patch<T>(path: string, { body }: { readonly body: unknown }): Promise<T> {
        const { metadata, data } = body as {
          metadata: { resourceVersion: string };
          data: Record<string, string | null>;
        };
        if (metadata.resourceVersion !== String(version)) throw new CodedError("conflict", "changed");
        version += 1;
        const old = secrets.get(path.split("/").at(-1) ?? "");
        assert.ok(old);
        const merged = Object.entries({ ...old.data, ...data }).filter(([, value]) => value !== null);
        const next = { ...old.metadata, resourceVersion: String(version) };
        secrets.set(old.metadata.name, { metadata: next, data: Object.fromEntries(merged) as Record<string, string> });
        return {} as T;
      },
    },
  });
  return { clock, enrolment, events, object, secret };
}

test("a token is valid only for its node and until it expires", async () => {
  const { clock, enrolment } = lab();
  assert.deepEqual(
    [
      enrolment.isValid("edge-1", token),
      enrolment.isValid("edge-2", token),
      enrolment.isValid("edge-1", "0".repeat(32)),
    ],
    [true, false, false],
  );
  await clock.advance(60_000);
  assert.equal(enrolment.isValid("edge-1", token), false);
  await assert.rejects(enrolment.enrol(request, signal), /the token has already been used, or is no longer valid/);
});

test("enrolling uses up the token, records the machine, and returns graftlet's public key", async () => {
  const { enrolment, events, secret } = lab();
  assert.equal(await enrolment.enrol(request, signal), "ssh-ed25519 of-PRIVATE graftlet\n");
  assert.equal(enrolment.isValid("edge-1", token), false);
  assert.deepEqual(readEnrolment(secret()), {
    token: undefined,
    isApproved: false,
    machine: { key: "ssh-ed25519 MACHINE", hostKeyFingerprint: "SHA256:HOST", from: "203.0.113.7" },
  });
  assert.deepEqual(events, ["MachineEnrolled: a machine has enrolled from 203.0.113.7; its host key is SHA256:HOST"]);
});

test("if two machines use the same token at the same time, only one enrols", async () => {
  const { enrolment } = lab();
  const both = await Promise.allSettled([enrolment.enrol(request, signal), enrolment.enrol(request, signal)]);
  assert.deepEqual(both.map(({ status }) => status).toSorted(), ["fulfilled", "rejected"]);
});

test("rejects enrolments for an object with authorizedKeys, or without a reverse tunnel", () => {
  assert.equal(lab({ ssh: { reverse: undefined } }).enrolment.isValid("edge-1", token), false);
  assert.equal(lab({ ssh: { reverse: { authorizedKeys: ["k"] } } }).enrolment.isValid("edge-1", token), false);
});

test("an enrolled machine is served once its host key is approved, or at once if its token was created with approval", async () => {
  const keysOf = async (options: Parameters<typeof lab>[0]) => {
    const { enrolment, object, secret } = lab(options);
    await enrolment.enrol(request, signal);
    const { reverse, hostKeyFingerprints } = withEnrolledKeys(object, secret()).spec.ssh;
    return [reverse?.authorizedKeys, hostKeyFingerprints];
  };
  const enrolled = [["ssh-ed25519 MACHINE"], ["SHA256:HOST"]];
  const approving = (fingerprint: string) => ({ annotations: { "graftlet.dev/approve-host-key": fingerprint } });
  assert.deepEqual(await keysOf({}), [undefined, undefined]);
  assert.deepEqual(await keysOf(approving("SHA256:OTHER")), [undefined, undefined]);
  assert.deepEqual(await keysOf(approving("SHA256:HOST")), enrolled);
  assert.deepEqual(await keysOf({ isApproved: true }), enrolled);
  const trusted = { isApproved: true, ssh: { hostKeyFingerprints: ["SHA256:OWN"] } };
  assert.deepEqual(await keysOf(trusted), [["ssh-ed25519 MACHINE"], ["SHA256:OWN"]]);
});

test("a new token does not affect a machine that has already enrolled", async () => {
  const { enrolment, object, secret } = lab({ isApproved: true });
  await enrolment.enrol(request, signal);
  const before = secret();
  assert.ok(before);
  const renewed = { ...before, data: { ...before.data, ...tokenData("f".repeat(32), new Date(0), false) } };
  assert.deepEqual(withEnrolledKeys(object, renewed).spec.ssh.reverse, { authorizedKeys: ["ssh-ed25519 MACHINE"] });
});

test("recognizes an enrolment's Secret by its name", () => {
  assert.equal(nodeOfEnrolment(enrolmentSecretName("edge-1.north")), "edge-1.north");
  assert.equal(nodeOfEnrolment("edge-1-ssh"), undefined);
});
