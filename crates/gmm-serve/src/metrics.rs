//! What the server counts, in the text format of Prometheus (OpenMetrics 1.0).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Labels of a counter.
type Labels = [(&'static str, String); 1];

/// Counters, gauges and histograms.
pub(crate) struct Metrics {
    /// By class of status: 2xx, 4xx, 5xx.
    pub(crate) requests: [Counter; 3],
    /// From the complete request to the complete answer.
    pub(crate) request_seconds: Histogram,
    pub(crate) rows: Counter,
    pub(crate) batch_rows: Histogram,
    pub(crate) evaluation_seconds: Histogram,
    pub(crate) connections: Gauge,
    pub(crate) requests_in_progress: Gauge,
    pub(crate) refused_queue: Counter,
    pub(crate) refused_connections: Counter,
    pub(crate) reloads: Family<Labels, Counter>,
    pub(crate) reload_failures: Family<Labels, Counter>,
    /// 1 while a model is served although its file has changed and cannot be read.
    pub(crate) stale: Family<Labels, Gauge>,
    registry: Registry,
}

impl Metrics {
    pub(crate) fn new() -> Arc<Self> {
        let seconds = || Histogram::new(exponential_buckets(50e-6, 2.0, 18));
        let mut registry = Registry::with_prefix("gmm");
        let requests = Family::<Labels, Counter>::default();
        registry.register("requests", "Requests answered, by class of status", requests.clone());
        let of_class = |class: &str| requests.get_or_create(&[("status", class.to_owned())]).clone();
        let metrics = Self {
            requests: ["2xx", "4xx", "5xx"].map(of_class),
            request_seconds: seconds(),
            rows: Counter::default(),
            batch_rows: Histogram::new(exponential_buckets(1.0, 2.0, 18)),
            evaluation_seconds: seconds(),
            connections: Gauge::default(),
            requests_in_progress: Gauge::default(),
            refused_queue: Counter::default(),
            refused_connections: Counter::default(),
            reloads: Family::default(),
            reload_failures: Family::default(),
            stale: Family::default(),
            registry: Registry::default(),
        };
        let unit = || Unit::Seconds;
        registry.register_with_unit("request", "Time to answer a request", unit(), metrics.request_seconds.clone());
        registry.register_with_unit(
            "evaluation",
            "Time to evaluate a batch",
            unit(),
            metrics.evaluation_seconds.clone(),
        );
        registry.register("rows", "Rows evaluated", metrics.rows.clone());
        registry.register("batch_rows", "Rows of a batch", metrics.batch_rows.clone());
        registry.register("connections", "Open connections", metrics.connections.clone());
        let text = "Requests whose head has come and that have no answer yet";
        registry.register("requests_in_progress", text, metrics.requests_in_progress.clone());
        registry.register(
            "refused_queue",
            "Requests refused because the queue was full",
            metrics.refused_queue.clone(),
        );
        let text = "Connections closed at once because too many were open";
        registry.register("refused_connections", text, metrics.refused_connections.clone());
        registry.register("reloads", "Files read again after a change", metrics.reloads.clone());
        registry.register("reload_failures", "Changed files that could not be read", metrics.reload_failures.clone());
        let text = "1 while the file of a model has changed and cannot be read, and the old model is served";
        registry.register("stale", text, metrics.stale.clone());
        let start = Gauge::<f64, AtomicU64>::default();
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        start.set(since.map_or(0.0, |since| since.as_secs_f64()));
        registry.register_with_unit("start_time", "Start of the process since 1970", Unit::Seconds, start);
        Arc::new(Self { registry, ..metrics })
    }

    /// Counts an answer.
    pub(crate) fn count(&self, status: u16, seconds: f64) {
        let class = match status {
            ..400 => 0,
            400..500 => 1,
            _ => 2,
        };
        self.requests[class].inc();
        self.request_seconds.observe(seconds);
    }

    /// Counts a request as one in progress until it is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> InProgress {
        self.requests_in_progress.inc();
        InProgress(self.clone())
    }

    /// The text of `/metrics`.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let written = encode(&mut text, &self.registry);
        debug_assert!(written.is_ok(), "writing to a string does not fail");
        text
    }
}

/// A request in progress.
pub(crate) struct InProgress(Arc<Metrics>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.requests_in_progress.dec();
    }
}

/// The label of a model.
pub(crate) fn of_model(name: &str) -> Labels {
    [("model", name.to_owned())]
}
