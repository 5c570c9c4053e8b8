import assert from "node:assert/strict";
import { test } from "node:test";
import { rig } from "./rig.ts";

test("counts authentication and authorization reviews, and lookups of tokens", async () => {
  const { measures, families, value } = rig();
  const active = "authentication_token_cache_active_fetch_count";
  assert.deepEqual((await families()).get(active)?.samples, [], "no series before the first token");
  measures.reviews.tokenReviewed("201", 300);
  measures.reviews.accessReviewed("<error>", 10_000);
  assert.equal(await value("apiserver_delegated_authn_request_total{code=201}"), 1);
  assert.equal(await value("apiserver_delegated_authn_request_duration_seconds_bucket{code=201,le=0.25}"), 0);
  assert.equal(await value("apiserver_delegated_authn_request_duration_seconds_bucket{code=201,le=0.5}"), 1);
  assert.equal(await value("apiserver_delegated_authz_request_total{code=<error>}"), 1);
  assert.equal(await value("apiserver_delegated_authz_request_duration_seconds_sum{code=<error>}"), 10);
  const [first, second] = [measures.tokenCache.fetching(), measures.tokenCache.fetching()];
  for (const status of ["in_flight", "blocked"]) assert.equal(await value(`${active}{status=${status}}`), 2);
  first(true);
  second(false);
  assert.equal(await value(`${active}{status=in_flight}`), 0);
  for (const status of ["ok", "error"])
    assert.equal(await value(`authentication_token_cache_fetch_total{status=${status}}`), 1);
  measures.tokenCache.looked(true, 0);
  measures.tokenCache.looked(false, 2_000);
  assert.equal(await value("authentication_token_cache_request_total{status=hit}"), 1);
  assert.equal(await value("authentication_token_cache_request_duration_seconds_sum{status=miss}"), 2);
});
