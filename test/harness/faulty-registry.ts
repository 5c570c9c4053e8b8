// A registry whose every repository is broken in its own way, for as long as nobody ends it: REPOSITORY:1 can be asked for.
// Prints its port. Listens on 127.0.0.1, where runtimes ask without TLS.
import { createHash } from "node:crypto";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** How a repository of that name answers. `blob` is what happens where the manifest itself is sound. */
const repositories: Readonly<Record<string, { readonly status?: number; readonly blob?: "torn" | "other" }>> = {
  unauthorized: { status: 401 },
  limited: { status: 429 },
  broken: { status: 500 },
  torn: { blob: "torn" },
  other: { blob: "other" },
};

const layer = Buffer.alloc(64 * 1024, "graftlet");
const config = Buffer.from(
  JSON.stringify({ architecture: "amd64", os: "linux", rootfs: { type: "layers", diff_ids: [digestOf(layer)] } }),
);
const schema = "application/vnd.docker.distribution.manifest.v2+json";
const manifest = Buffer.from(
  JSON.stringify({
    schemaVersion: 2,
    mediaType: schema,
    config: partOf("application/vnd.docker.container.image.v1+json", config),
    layers: [partOf("application/vnd.docker.image.rootfs.diff.tar", layer)],
  }),
);

function digestOf(content: Buffer): string {
  return `sha256:${createHash("sha256").update(content).digest("hex")}`;
}

function partOf(mediaType: string, content: Buffer): object {
  return { mediaType, size: content.length, digest: digestOf(content) };
}

/** Half of what is announced, and the connection ends. */
function tear(response: ServerResponse): void {
  response.writeHead(200, { "Content-Type": "application/octet-stream", "Content-Length": layer.length });
  response.write(layer.subarray(0, layer.length / 2), () => response.destroy());
}

const server = createServer((request, response) => {
  const path = request.url ?? "";
  if (path === "/v2/") return response.writeHead(200).end();
  const repository = repositories[/^\/v2\/([a-z]+)\//.exec(path)?.[1] ?? ""];
  // A repository of another name never answers.
  if (!repository) return undefined;
  if (repository.status !== undefined) return response.writeHead(repository.status, { "Retry-After": "3600" }).end();
  const send = (type: string, content: Buffer) => {
    const headers = { "Content-Type": type, "Content-Length": content.length };
    response.writeHead(200, { ...headers, "Docker-Content-Digest": digestOf(manifest) });
    return response.end(request.method === "HEAD" ? undefined : content);
  };
  if (path.includes("/manifests/")) return send(schema, manifest);
  if (path.endsWith(digestOf(config))) return send("application/octet-stream", config);
  return repository.blob === "torn"
    ? tear(response)
    : send("application/octet-stream", Buffer.alloc(layer.length, "x"));
});
server.listen(0, "127.0.0.1", () => console.log((server.address() as AddressInfo).port));
