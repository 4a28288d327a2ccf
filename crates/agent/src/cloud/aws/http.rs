//! One question by HTTP, and its answer.

use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How much an answer may have, in bytes. A route has some 400.
const BYTES_MAX: usize = 16 << 20;

type Connections = hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client, which makes its connections when it is asked first: most agents have no cloud, and need not read all the
/// authorities of the machine.
#[derive(Default)]
pub(super) struct Client(Option<Connections>);

/// What came back.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

impl Client {
    /// Sends a request.
    ///
    /// # Errors
    /// In words, why there is no answer.
    pub(super) async fn send(&mut self, request: request::Builder, body: String) -> Result<Answer, String> {
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
        let connections = self.connections()?;
        let asking = async {
            let response = connections.request(request).await.map_err(|error| whole(&error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), BYTES_MAX).collect().await;
            let body = body.map_err(|error| whole(&*error))?.to_bytes().to_vec();
            Ok(Answer { status, body })
        };
        let answer = tokio::time::timeout(PATIENCE, asking).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
    }

    fn connections(&mut self) -> Result<&Connections, String> {
        if self.0.is_none() {
            let builder = HttpsConnectorBuilder::new();
            let provider = rustls::crypto::ring::default_provider();
            let trusting = builder
                .with_provider_and_native_roots(provider)
                .map_err(|error| format!("this machine's certificate authorities: {error}"))?;
            let connector = trusting.https_or_http().enable_http1().build();
            let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
            self.0 = Some(client.build(connector));
        }
        self.0.as_ref().ok_or_else(|| "there is no client".to_owned())
    }
}

/// An error with its causes, which say what has happened.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
