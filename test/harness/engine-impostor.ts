import { createServer } from "node:http";
import { once } from "node:events";

/** Serves on a unix socket what an engine says of itself, and nothing else.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.40/#tag/System/operation/SystemVersion */
export async function startEngineImpostor(
  socket: string,
  version: {
    readonly Version: string;
    readonly ApiVersion: string;
    readonly MinAPIVersion: string;
    readonly Components?: readonly { readonly Name: string }[];
  },
): Promise<AsyncDisposable> {
  const server = createServer((request, response) => {
    const known = request.url?.replace(/[?].*$/, "").endsWith("/version");
    response.writeHead(known ? 200 : 400, { "content-type": "application/json", "api-version": version.ApiVersion });
    response.end(JSON.stringify(known ? version : { message: `${request.url} is not served` }));
  });
  server.listen(socket);
  await once(server, "listening");
  return {
    async [Symbol.asyncDispose]() {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}
