import assert from "node:assert/strict";
import { test } from "node:test";
import { negotiateVersion, compareVersions } from "../../../../../providers/docker/client/api-version.ts";

const socket = "/run/docker.sock";

test("uses the daemon's version from 1.41 to 1.44, and 1.44 with newer daemons", () => {
  const agreed = (ApiVersion: string, MinAPIVersion?: string) =>
    negotiateVersion({ ApiVersion, Version: "x", ...(MinAPIVersion && { MinAPIVersion }) }, socket);
  assert.deepEqual(
    ["1.41", "1.44", "1.52"].map((api) => agreed(api)),
    ["1.41", "1.44", "1.44"],
  );
  assert.equal(agreed("1.52", "1.44"), "1.44");
  assert.throws(() => agreed("1.40"), {
    code: "failed_precondition",
    message: /API 1\.40 to 1\.40: upgrade it to Docker Engine 20\.10/,
  });
  assert.throws(() => agreed("1.60", "1.45"), { code: "failed_precondition", message: /use a newer graftlet/ });
});

test("rejects a daemon that is not a Docker Engine, with its name", () => {
  const of = (Components: readonly { readonly Name?: string }[]) =>
    negotiateVersion({ ApiVersion: "1.41", Version: "5.4.2", Components }, socket);
  assert.throws(() => of([{ Name: "Podman Engine" }, { Name: "Engine" }]), {
    code: "failed_precondition",
    message: `the server at ${socket} identifies itself as "Podman Engine", and graftlet supports only the Docker Engine: set providerConfig.socket to a Docker Engine's socket.`,
  });
  assert.equal(of([{ Name: "Engine" }, { Name: "containerd" }]), "1.41");
  assert.equal(of([]), "1.41");
  assert.equal(of([{}]), "1.41");
});

test("API versions compare numerically", () => {
  assert.ok(compareVersions("1.9", "1.41") < 0);
  assert.ok(compareVersions("2.0", "1.52") > 0);
  assert.equal(compareVersions("1.42", "1.42"), 0);
});
