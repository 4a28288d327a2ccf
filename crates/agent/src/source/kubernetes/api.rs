//! The calls of the API server that are made: a list of objects in pages, a watch, and a patch of this node.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::Stream;
use http::header::RETRY_AFTER;
use http::{Response, Uri};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, VersionMatch, WatchEvent, WatchParams};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::util::MapResponseLayer;

use super::annotations::Changes;
use super::kind::{Kind, Object};
use super::node::{NETWORK_UNAVAILABLE, NODES};
use crate::backoff::jittered;

/// The name of the program that has written a field, as the API server notes it.
const FIELD_MANAGER: &str = "hostgap";
/// The longest wait that an API server is believed: something between it and here may answer in its place.
const AFTER_MAX: Duration = Duration::from_secs(60);
/// What an API server gives as the cause if its cache has not come up to the version that is asked for.
const TOO_NEW: &str = "ResourceVersionTooLarge";
/// For the beginning of a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// For an answer. An API server that starts again or has too much to do is slow for a while.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// The version from which to go on is forgotten (410): the list is to be made again.
    Expired,
    /// It cannot be asked: what says where and as whom cannot be used.
    Unasked(String),
    /// It does not answer, at the address that was called, if that is one and no name.
    Silent(String, Option<SocketAddr>),
    /// Its answer has not come to an end: it may be too long for the API server or for the way to it. With the address
    /// that was called, if not even the beginning came.
    Unfinished(String, Option<SocketAddr>),
    /// The API server refuses.
    Refused(String),
    /// The API server has too much to do, and says after which time to ask again.
    Busy(String, Duration),
    /// The API server does not know the version that is asked for: it has not come up to it, or its store was put back.
    /// It may say after which time to ask again.
    Behind(String, Duration),
    /// What it answers is not of the form that it should have.
    Garbled(String),
}

impl Failure {
    /// The same in words.
    pub(super) fn into_words(self) -> String {
        match self {
            Failure::Expired => "its version is forgotten".to_owned(),
            Failure::Unasked(why)
            | Failure::Silent(why, _)
            | Failure::Unfinished(why, _)
            | Failure::Refused(why)
            | Failure::Busy(why, _)
            | Failure::Behind(why, _)
            | Failure::Garbled(why) => why,
        }
    }

    /// How long it is not to be asked again: a random time from what the API server says to twice that, since it says
    /// the same to all nodes.
    pub(super) fn after(&self) -> Duration {
        match self {
            Failure::Busy(_, after) | Failure::Behind(_, after) => jittered(*after * 2),
            Failure::Expired
            | Failure::Unasked(_)
            | Failure::Silent(..)
            | Failure::Unfinished(..)
            | Failure::Refused(_)
            | Failure::Garbled(_) => Duration::ZERO,
        }
    }
}

/// The path of namespaces in the API, below which most objects are.
const NAMESPACES: &str = "/api/v1/namespaces";

/// What of a list is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// A page of the list as it is now: the first one, or that at a token. After a restart of this program, or at
    /// another API server, it never goes back in time.
    Page(&'a str),
    /// All of it, as an API server has it in its cache, but not older than a version.
    NotOlderThan(&'a str),
}

/// A page of a list.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "R: Kind"))]
pub(super) struct Page<R> {
    pub(super) metadata: PageMetadata,
    pub(super) items: Vec<Object<R>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMetadata {
    pub(super) resource_version: String,
    /// Where the next page begins; empty on the last one.
    #[serde(default, rename = "continue")]
    pub(super) next: String,
}

/// A connection to the API server.
pub(super) struct Api {
    client: Client,
    /// Where it is, for texts.
    server: String,
    /// The same, if that is an address.
    at: Option<SocketAddr>,
    heard: Arc<Heard>,
}

/// What was heard of the answer to the last call, as soon as it began: of one that does not end, or is an error, the
/// client gives neither.
#[derive(Debug, Default)]
struct Heard {
    has_begun: AtomicBool,
    /// After how many seconds the API server is to be asked again; 0: it does not say.
    after_s: AtomicU64,
}

impl Api {
    /// Connects as a kubeconfig says, or as every pod can. Files are read each time: tokens and certificates change.
    ///
    /// # Errors
    /// A file is missing or makes no sense.
    pub(super) async fn connect(kubeconfig: Option<&Path>) -> Result<Api, Failure> {
        let config = match kubeconfig {
            None => Config::incluster().map_err(|error| Failure::Unasked(chain(&error))),
            Some(path) => of_file(path).await,
        };
        let mut config = config?;
        config.connect_timeout = Some(CONNECT_TIME_MAX);
        // The callers try again, and want to know meanwhile.
        config.default_retry = false;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let at = address(&config.cluster_url);
        let heard = Arc::<Heard>::default();
        let hearing = Arc::clone(&heard);
        let listen = MapResponseLayer::new(move |response: Response<_>| {
            let header = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let seconds = header.and_then(|text| text.parse().ok()).unwrap_or(0);
            hearing.after_s.store(seconds, Ordering::Relaxed);
            hearing.has_begun.store(true, Ordering::Relaxed);
            response
        });
        let builder = ClientBuilder::try_from(config).map_err(|error| Failure::Unasked(chain(&error)))?;
        Ok(Api { client: builder.with_layer(&listen).build(), server, at, heard })
    }

    /// A part of the list of all objects of a kind.
    pub(super) async fn list<R: Kind>(&self, part: Part<'_>) -> Result<Page<R>, Failure> {
        let mut params = match part {
            Part::Page("") => ListParams::default().limit(R::PAGE),
            Part::Page(token) => ListParams::default().limit(R::PAGE).continue_token(token),
            Part::NotOlderThan(version) => {
                ListParams::default().at(version).matching(VersionMatch::NotOlderThan)
            }
        };
        params.label_selector = R::LABELS.map(str::to_owned);
        let request = Request::new(R::PATH).list(&params).expect("the path and the parameters are sound");
        self.in_time(self.client.request(request)).await
    }

    /// Opens a watch of all objects of a kind that goes on after a version.
    pub(super) async fn watch<R: Kind>(
        &self,
        version: &str,
    ) -> Result<impl Stream<Item = kube::Result<WatchEvent<Object<R>>>> + use<R>, Failure> {
        let params = WatchParams { label_selector: R::LABELS.map(str::to_owned), ..WatchParams::default() };
        let request = Request::new(R::PATH).watch(&params, version);
        let request = request.expect("the path and the parameters are sound");
        self.in_time(self.client.request_events(request)).await
    }

    /// Changes annotations of a node, and reports to Kubernetes that its network is there if `is_available`.
    pub(super) async fn patch(
        &self,
        node: &str,
        changes: &Changes,
        is_available: bool,
    ) -> Result<(), Failure> {
        let mut patch = json!({ "metadata": { "annotations": changes } });
        if is_available {
            let now = Time(Timestamp::now());
            // A strategic merge leaves conditions of other types as they are.
            patch["status"] = json!({ "conditions": [{
                "type": NETWORK_UNAVAILABLE, "status": "False", "reason": "HostgapIsUp",
                "message": "hostgap runs on this node",
                "lastTransitionTime": &now, "lastHeartbeatTime": &now,
            }] });
        }
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        // Annotations of a node can be changed with its status, for which the right to change nodes is not needed.
        let request =
            Request::new(NODES).patch_subresource("status", node, &params, &Patch::Strategic(patch));
        let request = request.map_err(|error| Failure::Unasked(chain(&error)))?;
        self.in_time(self.client.request::<Value>(request)).await.map(drop)
    }

    /// Deletes a namespace with all that is in it; one that is gone or going is no error.
    pub(super) async fn delete_namespace(&self, name: &str) -> Result<(), Failure> {
        let request = Request::new(NAMESPACES).delete(name, &DeleteParams::default());
        let request = request.map_err(|error| Failure::Unasked(chain(&error)))?;
        let delete = async {
            match self.client.request::<Value>(request).await {
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
                answer => answer.map(drop),
            }
        };
        self.in_time(delete).await
    }

    /// What an error of a call means.
    pub(super) fn failure(&self, error: kube::Error) -> Failure {
        let why = match error {
            kube::Error::Api(status) if status.code == 410 => return Failure::Expired,
            kube::Error::Api(status) => {
                let why = format!("{} answers {}: {}", self.server, status.code, status.message);
                let causes = status.details.iter().flat_map(|details| &details.causes);
                let is_behind = causes.into_iter().any(|cause| cause.reason == TOO_NEW);
                let after = Duration::from_secs(self.heard.after_s.swap(0, Ordering::Relaxed)).min(AFTER_MAX);
                return match (is_behind, after.is_zero()) {
                    (true, _) => Failure::Behind(why, after),
                    (false, true) => Failure::Refused(why),
                    (false, false) => Failure::Busy(why, after),
                };
            }
            kube::Error::SerdeError(error) => return self.garbled(&error),
            kube::Error::FromUtf8(error) => return self.garbled(&error),
            // What kube says itself of these two is only that it asked.
            kube::Error::Service(error) => format!("{}: {}", self.server, chain(&*error)),
            kube::Error::HyperError(error) => format!("{}: {}", self.server, chain(&error)),
            error => format!("{}: {}", self.server, chain(&error)),
        };
        if self.has_begun() { Failure::Unfinished(why, None) } else { Failure::Silent(why, self.at) }
    }

    /// What it means that an error of a watch came among its events. A line that is no event is to kube a status of
    /// which nothing is said.
    pub(super) fn failure_in_watch(&self, error: kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) if status.code == 0 => self.garbled("a line of a watch is no event"),
            error => self.failure(error),
        }
    }

    fn garbled(&self, why: impl Display) -> Failure {
        Failure::Garbled(format!("{}: its answer cannot be read: {why}", self.server))
    }

    fn has_begun(&self) -> bool {
        self.heard.has_begun.load(Ordering::Relaxed)
    }

    async fn in_time<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        self.heard.has_begun.store(false, Ordering::Relaxed);
        match timeout(ANSWER_TIME_MAX, call).await {
            Ok(answer) => answer.map_err(|error| self.failure(error)),
            Err(_) => {
                let seconds = ANSWER_TIME_MAX.as_secs();
                let (how_far, at) = if self.has_begun() { (" to the end", None) } else { ("", self.at) };
                let why = format!("{} has not answered{how_far} within {seconds} s", self.server);
                Err(Failure::Unfinished(why, at))
            }
        }
    }
}

async fn of_file(path: &Path) -> Result<Config, Failure> {
    let unusable = |error: kube::config::KubeconfigError| Failure::Unasked(chain(&error));
    let file = Kubeconfig::read_from(path).map_err(unusable)?;
    let names_proxy = |named: &kube::config::NamedCluster| {
        named.cluster.as_ref().is_some_and(|cluster| cluster.proxy_url.is_some())
    };
    let names_proxy = file.clusters.iter().any(names_proxy);
    let mut config =
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(unusable)?;
    if !names_proxy {
        // One of the environment (HTTPS_PROXY) is for ways out of the cluster.
        config.proxy_url = None;
    }
    Ok(config)
}

/// The address and port of a server that is not called by a name.
fn address(server: &Uri) -> Option<SocketAddr> {
    let host = server.host()?.trim_start_matches('[').trim_end_matches(']');
    let usual = if server.scheme_str() == Some("http") { 80 } else { 443 };
    Some(SocketAddr::new(host.parse().ok()?, server.port_u16().unwrap_or(usual)))
}

/// An error with its causes, each said once: many of them have their cause in their own text, too.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::source::kubernetes::service::EndpointSlice;

    /// Why a list has no result from a server that answers a call with this, and hangs up.
    async fn failure_of(answer: &'static str) -> (Failure, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serve = async move {
            let (mut call, _) = listener.accept().await.unwrap();
            let mut asked = [0; 4096];
            assert_ne!(call.read(&mut asked).await.unwrap(), 0);
            call.write_all(answer.as_bytes()).await.unwrap();
        };
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{ "name": "it", "cluster": { "server": format!("http://{at}") } }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
            "users": [{ "name": "it", "user": {} }],
        });
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let api = Api::connect(Some(&kubeconfig)).await.unwrap();
        let (page, ()) = tokio::join!(api.list::<EndpointSlice>(Part::Page("")), serve);
        (page.unwrap_err(), at)
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_is_one_of_a_server_that_is_there() {
        let (failure, at) = failure_of("").await;
        assert!(matches!(failure, Failure::Silent(_, Some(called)) if called == at), "{failure:?}");
        let (failure, _) = failure_of("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{").await;
        assert!(matches!(failure, Failure::Unfinished(_, None)), "{failure:?}");
    }

    #[test]
    fn a_time_that_all_nodes_are_told_is_spread() {
        let second = Duration::from_secs(1);
        for failure in [Failure::Busy(String::new(), second), Failure::Behind(String::new(), second)] {
            let waits: BTreeSet<Duration> = (0..20).map(|_| failure.after()).collect();
            assert!(
                waits.len() > 1 && waits.iter().all(|wait| (second..=second * 2).contains(wait)),
                "{waits:?}"
            );
        }
    }
}
