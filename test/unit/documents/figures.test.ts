import assert from "node:assert/strict";
import { test } from "node:test";
import { rowOf, textOf } from "./pages.ts";

/** How many of Kubernetes' own tests passed, and of how many, in the section of docs/conformance.md that a run writes. */
function passed(section: string): readonly [string, string] {
  const pattern = new RegExp(`<!-- conformance ${section} -->\\s+\\*\\*(\\d+) of (\\d+)\\*\\* passed`);
  const [, some = "", all = ""] = pattern.exec(textOf("docs/conformance.md")) ?? [];
  return [some, all];
}

/** The medians of the kubelet and of graftlet in docs/performance.md. */
function medians(figure: string): readonly [string, string] {
  const [, kubelet = "", graftlet = ""] = rowOf("docs/performance.md", figure).map(
    (cell) => cell.split(" · ")[0] ?? "",
  );
  return [kubelet, graftlet];
}

test("the README's figures match the generated pages", () => {
  const [tests, all] = passed("cri");
  assert.deepEqual(rowOf("README.md", "own tests passed").slice(1), [`${tests} of ${all}`, all]);
  const [slower, faster] = medians("create → Running");
  assert.deepEqual(rowOf("README.md", "from creating a pod to Running").slice(1), [`${faster} ms`, `${slower} ms`]);
  const [more, less] = medians("resident memory, 110 pods");
  assert.deepEqual(rowOf("README.md", "resident memory with 110 pods").slice(1), [`${less} MiB`, `${more} MiB`]);
});

test("the README's figures for other providers match docs/conformance.md", () => {
  const readme = textOf("README.md");
  assert.ok(readme.includes(`[${passed("ssh")[0]}](docs/conformance.md#containerd-over-ssh)`));
  assert.ok(readme.includes(`[${passed("docker")[0]}](docs/conformance.md#docker-engine)`));
});
