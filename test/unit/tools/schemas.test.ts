import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { customSchemas } from "../../../tools/schemas/custom-resources.ts";
import { fileOf, strict } from "../../../tools/schemas/json-schema.ts";
import { requiredVersion } from "../../../tools/schemas/modules.ts";
import { closureOf, schemasOf } from "../../../tools/schemas/openapi.ts";
import { kubeletVersion } from "../../../src/version.ts";

const root = join(import.meta.dirname, "../../..");
const text = { type: "string" };
const reference = (name: string) => ({ allOf: [{ $ref: `#/components/schemas/${name}` }], default: {} });
const kind = (...kinds: readonly string[]) => ({
  "x-kubernetes-group-version-kind": kinds.map((each) => ({ group: "apps", version: "v1", kind: each })),
});

const documents = [
  {
    components: {
      schemas: {
        Thing: {
          type: "object",
          properties: { apiVersion: text, kind: text, metadata: reference("Meta"), spec: reference("Spec") },
          ...kind("Thing"),
        },
        ThingList: {
          type: "object",
          properties: { metadata: reference("Meta"), items: { type: "array" } },
          ...kind("ThingList"),
        },
        Options: { type: "object", properties: { metadata: reference("Meta") }, ...kind("Options", "Others") },
        Meta: { type: "object", properties: { labels: { type: "object", additionalProperties: text } } },
        Spec: { type: "object", properties: { inner: { type: "array", items: reference("Spec") } } },
        Unused: text,
      },
    },
  },
];

describe("schemas from an API server's OpenAPI", () => {
  const schemas = schemasOf(documents);

  test("schemas cover the API's objects only, at the paths that kubeconform expects", () => {
    assert.deepEqual([...schemas.keys()], ["apps/thing_v1.json"]);
    assert.equal(fileOf("", "v1", "ConfigMap"), "v1/configmap_v1.json");
  });

  test("schemas contain exactly the referenced definitions, and reject unknown fields", () => {
    const { $ref, definitions } = schemas.get("apps/thing_v1.json") as Record<string, Record<string, object>>;
    assert.equal($ref, "#/definitions/Thing");
    assert.deepEqual(Object.keys(definitions ?? {}), ["Thing", "Meta", "Spec"]);
    assert.deepEqual(definitions?.["Spec"], {
      type: "object",
      properties: { inner: { type: "array", items: { allOf: [{ $ref: "#/definitions/Spec" }], default: {} } } },
      additionalProperties: false,
    });
    const labels = { type: "object", additionalProperties: text };
    assert.deepEqual(definitions?.["Meta"], { type: "object", properties: { labels }, additionalProperties: false });
  });

  test("schemas fail on a reference to a missing definition", () => {
    assert.throws(() => closureOf("Thing", { Thing: reference("Lost") }), /the OpenAPI has no schema Lost/);
  });
});

test("schemas treat a field called properties as a field, and leave preserved unknown fields open", () => {
  const named = { type: "object", properties: { properties: { type: "object" }, type: text } };
  assert.deepEqual(strict(named), { ...named, additionalProperties: false });
  const open = { type: "object", properties: { a: text }, "x-kubernetes-preserve-unknown-fields": true };
  assert.deepEqual(strict(open), open);
});

test("schemas have each version of a custom resource, with the API server's metadata", () => {
  const whole = {
    type: "object",
    properties: { metadata: { type: "object" }, spec: { type: "object", properties: {} } },
  };
  const spec = {
    group: "example.org",
    names: { kind: "Widget" },
    versions: [{ name: "v2", schema: { openAPIV3Schema: whole } }],
  };
  const meta = { name: "Meta", definitions: { Meta: text } };
  const [[file, schema] = []] = [...customSchemas([{ spec }], meta)];
  assert.equal(file, "example.org/widget_v2.json");
  assert.deepEqual(schema, {
    type: "object",
    properties: {
      metadata: { $ref: "#/definitions/Meta" },
      spec: { type: "object", properties: {}, additionalProperties: false },
    },
    additionalProperties: false,
    definitions: { Meta: text },
  });
});

test("schemas come from the API server version that the tests and graftlet use", () => {
  const versions = ["tools/schemas/go.mod", "test/cluster/tools/go.mod"].map((file) =>
    requiredVersion(readFileSync(join(root, file), "utf8"), "k8s.io/kubernetes"),
  );
  assert.deepEqual(versions, [kubeletVersion, kubeletVersion]);
  assert.throws(() => requiredVersion("module x\n", "k8s.io/kubernetes"), /does not require k8s\.io\/kubernetes/);
});
