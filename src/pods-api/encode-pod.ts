import { gunzipSync } from "node:zlib";
import {
  type DescField,
  type DescMessage,
  type JsonValue,
  createFileRegistry,
  fromBinary,
  fromJson,
  toBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { podDescriptor } from "../gen/pod-descriptor.ts";
import { isRecord } from "../lib/record.ts";
import type { Pod } from "../objects.ts";

/** Encodes a pod as Go's v1.Pod.Marshal does, without managed fields. */
export type PodEncoder = (pod: Pod) => Buffer;

/** @see https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding */
export function createPodEncoder(): PodEncoder {
  const bytes = gunzipSync(Buffer.from(podDescriptor, "base64"));
  const schema = createFileRegistry(fromBinary(FileDescriptorSetSchema, bytes)).getMessage("k8s.io.api.core.v1.Pod");
  if (!schema) throw new Error("src/gen/pod-descriptor.ts does not describe pods");
  return (pod) => {
    const json = messageJson(schema, pod);
    return Buffer.from(toBinary(schema, fromJson(schema, json, { ignoreUnknownFields: true })));
  };
}

/** Messages that are scalars in Kubernetes' JSON, by their protobuf names. */
const scalars: Readonly<Record<string, (value: unknown) => JsonValue>> = {
  "k8s.io.apimachinery.pkg.apis.meta.v1.Time": (time) => ({ seconds: Math.floor(Date.parse(String(time)) / 1000) }),
  "k8s.io.apimachinery.pkg.api.resource.Quantity": (amount) => ({ string: String(amount) }),
  "k8s.io.apimachinery.pkg.util.intstr.IntOrString": (value): JsonValue => {
    if (typeof value === "number") return { intVal: value };
    return { type: 1, strVal: String(value) };
  },
};

/** Messages whose fields are part of the enclosing object in Kubernetes' JSON, by the name of their field. */
const inlined = new Set(["volumeSource", "ephemeralContainerCommon", "handler", "localObjectReference"]);

/** Converts Kubernetes' JSON of a message to protobuf's JSON. */
function messageJson(message: DescMessage, value: unknown): JsonValue {
  const scalar = scalars[message.typeName];
  if (scalar) return scalar(value);
  if (!isRecord(value)) return null;
  const fields = message.fields.flatMap((field) => {
    const source = inlined.has(field.name) ? value : value[field.name];
    return source === undefined || source === null ? [] : [[field.name, fieldJson(field, source)] as const];
  });
  return Object.fromEntries(fields);
}

function fieldJson(field: DescField, value: unknown): JsonValue {
  const { message } = field;
  // Without a message, it is text, a number, or a list or map of them.
  if (!message) return value as JsonValue;
  if (Array.isArray(value)) return value.map((item) => messageJson(message, item));
  if (field.fieldKind !== "map" || !isRecord(value)) return messageJson(message, value);
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, messageJson(message, item)]));
}
