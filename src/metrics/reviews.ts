import type { ReviewMeasures } from "../api/access.ts";
import type { TokenCacheMeasures } from "../server/review-cache.ts";
import { type HistogramMetric, type CounterMetric, type Metrics, defaultBuckets } from "./registry.ts";

/** Creates the metrics of the API server's reviews of callers of the kubelet API. */
export function reviewMetrics(metrics: Metrics): ReviewMeasures {
  const tokens = reviewsOf(metrics, "authn", "TokenReviews");
  const accesses = reviewsOf(metrics, "authz", "SubjectAccessReviews");
  return {
    tokenReviewed: (code, ms) => tokens.reviewed(code, ms),
    accessReviewed: (code, ms) => accesses.reviewed(code, ms),
  };
}

function reviewsOf(metrics: Metrics, kind: "authn" | "authz", reviews: string) {
  const total: CounterMetric<"code"> = metrics.counter(
    `apiserver_delegated_${kind}_request_total`,
    `Requests for ${reviews}, by status code; <error> without a response.`,
    ["code"],
  );
  const durations: HistogramMetric<"code"> = metrics.histogram(
    `apiserver_delegated_${kind}_request_duration_seconds`,
    `Latency of requests for ${reviews}, in seconds.`,
    { labels: ["code"], buckets: [0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10] },
  );
  return {
    reviewed(code: string, ms: number) {
      total.add({ code });
      durations.addMs({ code }, ms);
    },
  };
}

/** Creates the metrics of the cache of bearer tokens that callers of the kubelet API present. */
export function tokenCacheMetrics(metrics: Metrics): TokenCacheMeasures {
  const labels = ["status"] as const;
  const lookups = metrics.counter(
    "authentication_token_cache_request_total",
    "Bearer token authentications, by whether the token was cached.",
    labels,
  );
  const durations = metrics.histogram(
    "authentication_token_cache_request_duration_seconds",
    "Duration of bearer token authentications, in seconds.",
    { labels, buckets: defaultBuckets },
  );
  const fetches = metrics.counter(
    "authentication_token_cache_fetch_total",
    "Reviews of tokens that were not cached, by status: ok for a valid token.",
    labels,
  );
  let active: number | undefined;
  metrics.gauge(
    "authentication_token_cache_active_fetch_count",
    "Token reviews in progress, and callers waiting for them.",
    {
      labels,
      // Every caller waits for a separate review.
      values: () => (active === undefined ? [] : ["in_flight", "blocked"].map((status) => [{ status }, active ?? 0])),
    },
  );
  return {
    looked(isHit, ms) {
      const status = isHit ? "hit" : "miss";
      lookups.add({ status });
      durations.addMs({ status }, ms);
    },
    fetching() {
      active = (active ?? 0) + 1;
      return (isValid) => {
        active = (active ?? 1) - 1;
        // The API server explains every invalid token with an error.
        fetches.add({ status: isValid ? "ok" : "error" });
      };
    },
  };
}
