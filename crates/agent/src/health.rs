//! The state of an agent over HTTP: health checks and Prometheus's metrics.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::sleep;

use crate::Endpoint;
use crate::check::Checks;
use crate::status::Status;

/// An agent that has not looked at its node for so long is stuck.
const STUCK: Duration = Duration::from_secs(60);
/// The limits of a histogram in seconds: a look at few peers takes a millisecond, and a thousand are
/// made in one second.
const SECONDS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0];

/// For a port that an agent has which ends just now.
const PORT_PATIENCE: Duration = Duration::from_secs(1);
const PORT_PAUSE: Duration = Duration::from_millis(20);

/// What is known of an agent's health. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Health(Arc<HealthState>);

#[derive(Debug)]
struct HealthState {
    begun: Instant,
    /// When the last look ended, in milliseconds since the beginning.
    looked_ms: AtomicU64,
    is_ready: AtomicBool,
    /// As it is in the file; empty before the first look.
    status: Mutex<String>,
    metrics: Metrics,
    checks: Checks,
}

#[derive(Debug)]
struct Metrics {
    registry: Registry,
    peers: Family<[(&'static str, &'static str); 1], Gauge>,
    services: Family<[(&'static str, &'static str); 1], Gauge>,
    repairs: Counter,
    look: Histogram,
    ready: Gauge,
    source_reachable: Gauge,
}

impl Metrics {
    fn new(version: &str) -> Metrics {
        let mut registry = Registry::with_prefix("hostgap_agent");
        let metrics = Metrics {
            registry: Registry::default(),
            peers: Family::default(),
            services: Family::default(),
            repairs: Counter::default(),
            look: Histogram::new(SECONDS),
            ready: Gauge::default(),
            source_reachable: Gauge::default(),
        };
        let help = "Always 1; its label is the version of this agent";
        registry.register("build", help, Info::new(vec![("version", version.to_owned())]));
        let help = "Other nodes, by whether their pods are reached; refused is also one whose way the kernel did not take";
        registry.register("peers", help, metrics.peers.clone());
        let help = "The cluster's Services, by whether their calls are led";
        registry.register("services", help, metrics.services.clone());
        let help = "Things that another program had changed and that were brought back";
        registry.register("repairs", help, metrics.repairs.clone());
        let help = "Time of a look at the node, with what it took to bring it to the leases";
        registry.register_with_unit("look", help, Unit::Seconds, metrics.look.clone());
        registry.register("ready", "1 if the node is in the network", metrics.ready.clone());
        let help = "1 if the lease source answers, what it says can be read, and what this node announces is written";
        registry.register("source_reachable", help, metrics.source_reachable.clone());
        Metrics { registry, ..metrics }
    }
}

impl Health {
    /// Of an agent of this version that also checks the ways to other nodes when asked.
    pub(crate) fn new(checks: Checks, version: &str) -> Health {
        Health(Arc::new(HealthState {
            checks,
            begun: Instant::now(),
            looked_ms: AtomicU64::new(0),
            is_ready: AtomicBool::new(false),
            status: Mutex::new(String::new()),
            metrics: Metrics::new(version),
        }))
    }

    /// Notes a look that took so long.
    pub(crate) fn note(&self, status: &Status, is_ready: bool, took: Duration) {
        let Health(known) = self;
        known.note_look();
        // Once in the network a node stays ready: its pods are well while the source is away.
        known.is_ready.fetch_or(is_ready, Ordering::Relaxed);
        *known.status.lock().expect("no holder panics") = status.to_text();
        let metrics = &known.metrics;
        let reached = status.peers.values().filter(|peer| peer.why_not.is_none()).count();
        for (state, count) in [("reached", reached), ("refused", status.peers.len() - reached)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            metrics.peers.get_or_create(&[("state", state)]).set(count);
        }
        if let Some(services) = &status.services {
            let failed = if services.why_not.is_some() { services.total } else { services.failed.len() };
            for (state, count) in [("led", services.total.saturating_sub(failed)), ("failed", failed)] {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                metrics.services.get_or_create(&[("state", state)]).set(count);
            }
        }
        metrics.repairs.inc_by(status.repairs_total.saturating_sub(metrics.repairs.get()));
        metrics.look.observe(took.as_secs_f64());
        metrics.ready.set(i64::from(is_ready));
        metrics.source_reachable.set(i64::from(status.source_unreachable.is_none()));
    }

    /// Notes that the agent waits for another one, and whether it could take the network over. That holds
    /// until the next note.
    pub(crate) fn note_waiting(&self, is_ready: bool) {
        let Health(known) = self;
        known.note_look();
        known.is_ready.store(is_ready, Ordering::Relaxed);
    }

    /// Answers at an endpoint, for as long as the task lives.
    ///
    /// # Errors
    /// It cannot be had.
    pub(crate) async fn serve(&self, at: &Endpoint) -> io::Result<()> {
        let router = Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route("/status", get(status))
            .route("/check", get(check))
            .with_state(self.clone());
        match at {
            Endpoint::Address(address) => {
                let listener = port(*address).await?;
                tokio::spawn(async { axum::serve(listener, router).await });
            }
            Endpoint::Socket(path) => {
                let listener = socket(path)?;
                tokio::spawn(async { axum::serve(listener, router).await });
            }
        }
        Ok(())
    }
}

impl HealthState {
    fn note_look(&self) {
        let now_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.looked_ms.store(now_ms, Ordering::Relaxed);
    }
}

/// The lock of a network is free a moment before the port is, when the agent ends that had both.
async fn port(address: SocketAddr) -> io::Result<TcpListener> {
    let begun = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && begun.elapsed() < PORT_PATIENCE => {
                sleep(PORT_PAUSE).await;
            }
            bound => return bound,
        }
    }
}

/// A process before this one has left its socket: nothing removes it. Any other file there is somebody's, and a slip.
fn socket(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::other("a file is there that is no socket")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    UnixListener::bind(path)
}

/// Whether the loop runs.
async fn healthz(State(Health(known)): State<Health>) -> impl IntoResponse {
    let looked = Duration::from_millis(known.looked_ms.load(Ordering::Relaxed));
    let since = known.begun.elapsed().saturating_sub(looked);
    match since < STUCK {
        true => (StatusCode::OK, "ok\n".to_owned()),
        false => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the node was last compared {} s ago\n", since.as_secs()),
        ),
    }
}

/// Whether pods can use the network.
async fn readyz(State(Health(known)): State<Health>) -> impl IntoResponse {
    match known.is_ready.load(Ordering::Relaxed) {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready yet; the log says why\n"),
    }
}

async fn metrics(State(Health(known)): State<Health>) -> impl IntoResponse {
    let mut text = String::new();
    encode(&mut text, &known.metrics.registry).expect("a text can be written to");
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

/// What the agent has seen itself. One that waits has not looked, and the file is the other one's.
async fn status(State(Health(known)): State<Health>) -> impl IntoResponse {
    let text = known.status.lock().expect("no holder panics").clone();
    match text.is_empty() {
        false => (StatusCode::OK, [(CONTENT_TYPE, "application/json")], text),
        true => {
            let why = "this agent has not compared the node yet\n".to_owned();
            (StatusCode::SERVICE_UNAVAILABLE, [(CONTENT_TYPE, "text/plain; charset=utf-8")], why)
        }
    }
}

/// The ways to the other nodes.
async fn check(State(Health(known)): State<Health>) -> impl IntoResponse {
    match known.checks.row().await {
        Ok(row) => (StatusCode::OK, [(CONTENT_TYPE, "application/json")], row.to_string()),
        Err(why) => {
            (StatusCode::SERVICE_UNAVAILABLE, [(CONTENT_TYPE, "text/plain; charset=utf-8")], why + "\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_takes_the_place_of_another_one_and_of_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let (path, file) = (directory.path().join("agent.sock"), directory.path().join("net-conf.json"));
        drop(socket(&path).unwrap());
        assert!(path.exists() && socket(&path).is_ok());
        fs::write(&file, "{}").unwrap();
        assert_eq!(socket(&file).unwrap_err().to_string(), "a file is there that is no socket");
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
    }

    fn health() -> Health {
        let home = node::Home::at("/nowhere", "/nowhere");
        let network = crate::check::Network { name: "pods".to_owned(), status: "/nowhere".into(), home };
        Health::new(Checks::of(network), "1.2.3")
    }

    #[tokio::test]
    async fn the_status_is_said_from_the_first_look_on() {
        let health = health();
        let code = async || status(State(health.clone())).await.into_response().status();
        health.note_waiting(true);
        assert_eq!(code().await, StatusCode::SERVICE_UNAVAILABLE);
        health.note(&Status::default(), false, Duration::ZERO);
        assert_eq!(code().await, StatusCode::OK);
    }

    #[test]
    fn metrics_name_the_version() {
        let mut text = String::new();
        encode(&mut text, &health().0.metrics.registry).unwrap();
        assert!(text.contains("hostgap_agent_build_info{version=\"1.2.3\"} 1\n"), "{text}");
    }

    #[test]
    fn an_agent_that_waits_is_as_ready_as_it_was_noted_last() {
        let health = health();
        let is_ready = || health.0.is_ready.load(Ordering::Relaxed);
        health.note_waiting(true);
        assert!(is_ready());
        health.note_waiting(false);
        assert!(!is_ready());
        health.note(&Status::default(), true, Duration::ZERO);
        health.note(&Status::default(), false, Duration::ZERO);
        assert!(is_ready(), "once in the network a node stays ready");
    }
}
