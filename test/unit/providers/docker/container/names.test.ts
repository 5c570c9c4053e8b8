import assert from "node:assert/strict";
import { test } from "node:test";
import {
  containerName,
  parseContainerName,
  parseSandboxName,
  sandboxName,
} from "../../../../../providers/docker/container/names.ts";

const pod = { name: "web-0", namespace: "default", uid: "6d1f", attempt: 2 };

test("uses cri-dockerd's names and parses them", () => {
  const sandbox = sandboxName(pod);
  const container = containerName({ name: "main", attempt: 3 }, pod);
  assert.equal(sandbox, "k8s_POD_web-0_default_6d1f_2");
  assert.equal(container, "k8s_main_web-0_default_6d1f_3");
  assert.deepEqual(parseSandboxName(`/${sandbox}`), pod);
  assert.deepEqual(parseContainerName(`/${container}`), { name: "main", attempt: 3 });
});

test("ignores the suffix that is added when a name is already taken", () => {
  assert.deepEqual(parseSandboxName(`${sandboxName(pod)}_00ffab12`), pod);
});

test("does not parse a sandbox's name as a container's or vice versa, nor foreign names at all", () => {
  assert.equal(parseContainerName(sandboxName(pod)), undefined);
  assert.equal(parseSandboxName(containerName({ name: "main", attempt: 0 }, pod)), undefined);
  for (const name of [
    "web",
    "k8s_POD_a_b_c",
    "k8s_POD_a_b_c_x",
    "k8s_POD_a_b_c_1_zz",
    "k8s_POD_a_b_c_1_ab_ab",
    "k8s__a_b_c_1",
  ])
    assert.equal(parseSandboxName(name) ?? parseContainerName(name), undefined, name);
});
