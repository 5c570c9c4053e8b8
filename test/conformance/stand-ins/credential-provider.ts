// A cloud's credential provider plugin. Where it is asked in a service account's name it checks what upstream's own checks, and has
// credentials; else it has none, so that a test passes by the other way alone.
// https://github.com/kubernetes/kubernetes/tree/v1.36.3/test/e2e_node/plugins/gcp-credential-provider
import assert from "node:assert/strict";
import { text } from "node:stream/consumers";

interface Request {
  readonly apiVersion: string;
  readonly serviceAccountToken?: string;
  readonly serviceAccountAnnotations?: Readonly<Record<string, string>>;
}

const { REGISTRY = "", REGISTRY_USER: username, REGISTRY_PASSWORD: password, PLUGIN_MODE } = process.env;
const { apiVersion, ...request } = JSON.parse(await text(process.stdin)) as Request;
const { serviceAccountToken: token, serviceAccountAnnotations: annotations } = request;
const inName = PLUGIN_MODE === "serviceaccount";
if (inName) {
  const claims = Buffer.from(token?.split(".")[1] ?? "", "base64url").toString();
  assert.deepEqual((JSON.parse(claims) as { readonly aud: unknown }).aud, ["test-audience"]);
  assert.deepEqual(annotations, { "domain.io/identity-id": "123456", "domain.io/identity-type": "serviceaccount" });
} else {
  assert.deepEqual([token, annotations], [undefined, undefined]);
}
const auth = inName ? { [REGISTRY]: { username, password } } : {};
const cacheKeyType = inName ? "Global" : "Registry";
process.stdout.write(JSON.stringify({ kind: "CredentialProviderResponse", apiVersion, cacheKeyType, auth }));
