//! Lists of an API server that has too much to do, or forgets: it answers as a test says.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent::source::LeaseSource;
use agent::source::kubernetes::{KubernetesSource, PREFIX};
use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::kubernetes::{own, peer};
use crate::scene::patiently;

/// An answer.
enum Answer {
    /// Its status, after how many seconds to ask again, and its body.
    Whole(u16, Option<u64>, String),
    /// One of which the beginning comes and the end does not.
    Endless,
}

/// What is asked for, with the time, and the answers to come. When there are none left, it answers no more.
#[derive(Clone, Default)]
struct Script {
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

async fn answer(State(script): State<Script>, RawQuery(query): RawQuery) -> impl IntoResponse {
    script.asked.lock().unwrap().push((query.unwrap_or_default(), Instant::now()));
    let next = script.answers.lock().unwrap().pop_front();
    match next {
        Some(Answer::Whole(status, after_s, body)) => {
            let after = after_s.map(|seconds| (RETRY_AFTER, seconds.to_string().parse().unwrap()));
            let headers = after.into_iter().collect::<HeaderMap>();
            (StatusCode::from_u16(status).unwrap(), headers, body).into_response()
        }
        Some(Answer::Endless) => {
            let begin = stream::iter([Ok::<_, Infallible>("{")]);
            Body::from_stream(begin.chain(stream::pending())).into_response()
        }
        None => std::future::pending().await,
    }
}

/// A page of nodes at a version, and the token of the next one.
fn page(nodes: &[&str], version: u64, next: &str) -> Answer {
    let node = |name: &&str| {
        let mut node = peer(name, "10.1.1.0/24", "192.0.2.1");
        node["metadata"]["resourceVersion"] = json!("1");
        node
    };
    let list = json!({
        "metadata": { "resourceVersion": version.to_string(), "continue": next },
        "items": nodes.iter().map(node).collect::<Vec<_>>(),
    });
    Answer::Whole(200, None, list.to_string())
}

fn status(code: u16, message: &str, causes: &[Value]) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "code": code, "details": { "causes": causes },
    })
}

/// A watch with one line.
fn watched(line: &Value) -> Answer {
    Answer::Whole(200, None, format!("{line}\n"))
}

/// A watch whose version is forgotten.
fn forgotten() -> Answer {
    watched(&json!({ "type": "ERROR", "object": status(410, "too old resource version", &[]) }))
}

/// What an API server says whose cache has not come up to a version.
fn too_new(after_s: Option<u64>) -> Answer {
    let status = status(504, "Too large resource version", &[json!({ "reason": "ResourceVersionTooLarge" })]);
    Answer::Whole(504, after_s, status.to_string())
}

/// The source's snapshots have shown these nodes, and it has asked for these.
async fn follow(answers: Vec<Answer>, wanted: &[&str]) -> Vec<(String, Instant)> {
    let script = Script::default();
    let count = answers.len() + 1;
    script.answers.lock().unwrap().extend(answers);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(script.clone());
    let server_task = tokio::spawn(async { axum::serve(listener, router).await });
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig: PathBuf = folder.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{ "name": "it", "cluster": { "server": server } }],
        "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
        "users": [{ "name": "it", "user": {} }],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let source = KubernetesSource {
        node: "own".to_owned(),
        kubeconfig: Some(kubeconfig),
        network: folder.path().join("net-conf.json"),
        annotation_prefix: PREFIX.to_owned(),
        set_condition: false,
        services: false,
    };
    let (_own, announced) = watch::channel(Some(own([192, 0, 2, 100])));
    let mut snapshots = source.start(announced);
    let is_so = |names: Vec<&String>| names == wanted;
    patiently(snapshots.wait_for(|snapshot| is_so(snapshot.others.keys().collect()))).await.unwrap();
    patiently(async {
        while script.asked.lock().unwrap().len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    server_task.abort();
    script.asked.lock().unwrap().clone()
}

/// Whether a question is a watch, a page at a token, or all that is not older than a version.
fn kinds(asked: &[(String, Instant)]) -> Vec<String> {
    let kind = |(query, _): &(String, Instant)| {
        let pairs: Vec<(&str, &str)> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let of = |key| pairs.iter().find(|(name, _)| *name == key).map_or("", |(_, value)| *value);
        match (of("watch"), of("resourceVersionMatch"), of("limit")) {
            ("true", _, _) => format!("watch from {}", of("resourceVersion")),
            (_, "NotOlderThan", "") => format!("all of {} or later", of("resourceVersion")),
            _ => format!("page {:?} of {}", of("continue"), of("limit")),
        }
    };
    asked.iter().map(kind).collect()
}

#[tokio::test]
async fn a_page_that_fails_is_asked_for_again_and_when_the_server_says() {
    let busy = Answer::Whole(429, Some(1), "Too many requests, please try again later.".to_owned());
    let away = Answer::Whole(503, None, String::new());
    let answers = vec![page(&["a"], 10, "second"), busy, away, page(&["b"], 10, "")];
    let asked = follow(answers, &["a", "b"]).await;
    let second = "page \"second\" of 100";
    assert_eq!(kinds(&asked), ["page \"\" of 100", second, second, second, "watch from 10"]);
    assert!(asked[2].1 - asked[1].1 >= Duration::from_secs(1));
}

/// As after a restart of the API server, when all nodes ask at once.
#[tokio::test]
async fn a_list_in_the_place_of_another_may_come_from_a_cache() {
    let away = Answer::Whole(503, None, String::new());
    let answers = vec![page(&["a"], 10, ""), forgotten(), away, page(&["b"], 12, "")];
    let asked = follow(answers, &["b"]).await;
    let all = "all of 10 or later";
    assert_eq!(kinds(&asked), ["page \"\" of 100", "watch from 10", all, all, "watch from 12"]);
}

/// As where the store was put back to an earlier state.
#[tokio::test]
async fn a_version_that_no_server_knows_is_given_up() {
    let answers = vec![page(&["a"], 10, ""), forgotten(), too_new(None), too_new(None), page(&["b"], 5, "")];
    let asked = follow(answers, &["b"]).await;
    let (first, all) = ("page \"\" of 100", "all of 10 or later");
    assert_eq!(kinds(&asked), [first, "watch from 10", all, all, first, "watch from 5"]);
}

/// As where one of several API servers lags: its store is not to be asked for all that its cache will have.
#[tokio::test]
async fn a_cache_that_lags_is_waited_for() {
    let answers = vec![page(&["a"], 10, ""), forgotten(), too_new(Some(1)), page(&["b"], 12, "")];
    let asked = follow(answers, &["b"]).await;
    let all = "all of 10 or later";
    assert_eq!(kinds(&asked), ["page \"\" of 100", "watch from 10", all, all, "watch from 12"]);
    assert!(asked[3].1 - asked[2].1 >= Duration::from_secs(1));
}

/// As where so many nodes ask for it that it comes to none of them in time.
#[tokio::test]
async fn a_list_that_does_not_end_is_asked_for_in_pages() {
    let answers = vec![page(&["a"], 10, ""), forgotten(), Answer::Endless, page(&["b"], 12, "")];
    let asked = follow(answers, &["b"]).await;
    let first = "page \"\" of 100";
    assert_eq!(kinds(&asked), [first, "watch from 10", "all of 10 or later", first, "watch from 12"]);
}

/// As at another API server, which does not take the token.
#[tokio::test]
async fn a_page_that_is_refused_again_and_again_begins_the_list_anew() {
    let refused = || {
        let status = status(400, "continue key is not valid", &[]);
        Answer::Whole(400, None, status.to_string())
    };
    let refusals = [refused(), refused(), refused()];
    let mut answers = vec![page(&["a"], 10, "second")];
    answers.extend(refusals);
    answers.push(page(&["b"], 12, ""));
    let asked = follow(answers, &["b"]).await;
    let (first, second) = ("page \"\" of 100", "page \"second\" of 100");
    assert_eq!(kinds(&asked), [first, second, second, second, first, "watch from 12"]);
}

#[tokio::test]
async fn after_what_a_watch_cannot_tell_the_list_is_made_anew() {
    // kube takes each of them for a status.
    let lines = [
        json!({ "type": "ADDED", "object": {} }),
        json!({ "type": "RENAMED", "object": peer("a", "10.1.1.0/24", "192.0.2.1") }),
        status(410, "too old resource version", &[]),
    ];
    for line in lines {
        let answers = vec![page(&["a"], 10, ""), watched(&line), page(&["b"], 12, "")];
        let asked = follow(answers, &["b"]).await;
        let wanted = ["page \"\" of 100", "watch from 10", "all of 10 or later", "watch from 12"];
        assert_eq!(kinds(&asked), wanted, "{line}");
    }
}
