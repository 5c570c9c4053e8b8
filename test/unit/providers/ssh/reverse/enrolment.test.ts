import assert from "node:assert/strict";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import ssh2 from "ssh2";
import { publicKeyOf } from "../../../../../providers/ssh/reverse/enrolment.ts";
import { startReverseServer } from "../../../../../providers/ssh/reverse/server.ts";
import { systemClock } from "../../../../../src/lib/clock.ts";
import { CodedError } from "../../../../../src/lib/errors.ts";
import { silentLog } from "../../../../../src/lib/log.ts";
import { type EnrolmentRequest, enrolmentUser } from "../../../../../src/seams/enrolment.ts";
import { sshKey } from "../../../../harness/ssh-keys.ts";

const token = "0123456789abcdef0123456789abcdef";
const user = enrolmentUser("edge-1.north", token);
const pem = () => sshKey("rsa").privateKey.export({ type: "pkcs1", format: "pem" });
const [machineKey, hostKey] = [pem(), publicKeyOf(pem(), undefined)];

/** A listener at which a machine may enrol with the token. */
async function listener(t: TestContext, answer: () => string = () => "ssh-ed25519 LOGIN graftlet\n") {
  const requests: EnrolmentRequest[] = [];
  const server = await startReverseServer({
    address: "127.0.0.1",
    port: 0,
    hostKey: Buffer.from(pem()),
    findKeyOwner: async () => undefined,
    enrolment: () => ({
      isValid: (nodeName, given) => nodeName === "edge-1.north" && given === token,
      async enrol(request) {
        requests.push(request);
        return answer();
      },
    }),
    clock: systemClock(),
    log: silentLog(),
  });
  const client = new ssh2.Client();
  client.on("error", () => undefined);
  t.after(async () => {
    client.destroy();
    await server[Symbol.asyncDispose]();
  });
  const connect = async (username: string) => {
    client.connect({ host: "127.0.0.1", port: server.port, username, privateKey: machineKey });
    await once(client, "ready");
  };
  const enrol = async (input: string) => {
    await connect(user);
    const { promise, resolve, reject } = Promise.withResolvers<ssh2.ClientChannel>();
    client.shell(false, (error, opened) => (error ? reject(error) : resolve(opened)));
    const channel = await promise;
    const code = once(channel, "exit");
    channel.end(input);
    const [said, complaint] = await Promise.all([text(channel), text(channel.stderr)]);
    return { said, complaint, code: (await code)[0] as unknown };
  };
  return { requests, client, connect, enrol };
}

test("a machine with a valid token enrols with its key and host key, and gets graftlet's login key", async (t) => {
  const { requests, enrol } = await listener(t);
  assert.deepEqual(await enrol(`${hostKey} root@edge-1\n`), {
    said: "ssh-ed25519 LOGIN graftlet\n",
    complaint: "",
    code: 0,
  });
  const [request] = requests;
  assert.deepEqual(
    [request?.nodeName, request?.token, request?.machineKey, request?.from],
    ["edge-1.north", token, publicKeyOf(machineKey, undefined), "127.0.0.1"],
  );
  assert.match(request?.hostKeyFingerprint ?? "", /^SHA256:[A-Za-z0-9+/]{43}$/);
});

for (const [what, input] of [
  ["no key", ""],
  ["a private key", machineKey],
  ["more than 16 KiB", `${hostKey} ${"x".repeat(20_000)}`],
] as const)
  test(`refuses a machine that sends ${what} in place of its host key`, async (t) => {
    const { requests, enrol } = await listener(t);
    const { said, complaint, code } = await enrol(input);
    assert.deepEqual([said, code, requests.length], ["", 1, 0]);
    assert.match(complaint, /^graftlet: standard input is not a public host key/);
  });

test("tells the machine in one sentence why it cannot enrol, without details of other errors", async (t) => {
  const used = await listener(t, () => {
    throw new CodedError("permission_denied", "the token has been used");
  });
  assert.equal((await used.enrol(hostKey)).complaint, "graftlet: the token has been used\n");
  const broken = await listener(t, () => {
    throw new Error("secret detail");
  });
  assert.equal((await broken.enrol(hostKey)).complaint, "graftlet: cannot enrol; see its log\n");
});

for (const [what, username] of [
  ["another token", enrolmentUser("edge-1.north", "f".repeat(32))],
  ["the token of another node", enrolmentUser("edge-2", token)],
  ["a malformed token", `${user}0`],
] as const)
  test(`rejects a login with ${what}`, async (t) => {
    const { connect, requests } = await listener(t);
    await assert.rejects(connect(username), /authentication methods failed/);
    assert.equal(requests.length, 0);
  });

test("a machine that enrols gets neither a forward nor a second session", async (t) => {
  const { client, connect } = await listener(t);
  await connect(user);
  const refusal = (ask: (done: (error?: Error) => void) => unknown) =>
    new Promise<boolean>((resolve) => ask((error) => resolve(error !== undefined)));
  assert.ok(await refusal((done) => client.forwardIn("127.0.0.1", 22, done)));
  assert.ok(await refusal((done) => client.forwardOut("127.0.0.1", 0, "127.0.0.1", 22, done)));
  assert.ok(!(await refusal((done) => client.shell(false, done))));
  assert.ok(await refusal((done) => client.shell(false, done)));
});
