//! One question by HTTP, and its answer.

use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{StatusCode, request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How much an answer may have, in bytes. A route has some 400.
const BYTES_MAX: usize = 16 << 20;

type Connections<C> = hyper_util::client::legacy::Client<C, Full<Bytes>>;

/// A client. What it needs for `https` it makes when it is asked first: most agents have no cloud, and the metadata
/// service has no certificate, so that not all need the authorities of the machine.
#[derive(Default)]
pub(super) struct Client {
    plain: Option<Connections<HttpConnector>>,
    secure: Option<Connections<HttpsConnector<HttpConnector>>>,
}

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
        let answering = if request.uri().scheme() == Some(&Scheme::HTTPS) {
            self.secure()?.request(request)
        } else {
            self.plain().request(request)
        };
        let asking = async {
            let response = answering.await.map_err(|error| whole(&error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), BYTES_MAX).collect().await;
            let body = body.map_err(|error| whole(&*error))?.to_bytes().to_vec();
            Ok(Answer { status, body })
        };
        let answer = tokio::time::timeout(PATIENCE, asking).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
    }

    fn plain(&mut self) -> &Connections<HttpConnector> {
        self.plain.get_or_insert_with(|| {
            hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http()
        })
    }

    /// One that trusts the authorities of this machine.
    fn secure(&mut self) -> Result<&Connections<HttpsConnector<HttpConnector>>, String> {
        match &mut self.secure {
            Some(client) => Ok(client),
            none => {
                let builder = HttpsConnectorBuilder::new();
                let provider = rustls::crypto::ring::default_provider();
                let trusting = builder.with_provider_and_native_roots(provider).map_err(|error| {
                    format!("this machine's certificate authorities, which SSL_CERT_FILE names: {error}")
                })?;
                let connector = trusting.https_only().enable_http1().build();
                let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
                Ok(none.insert(client.build(connector)))
            }
        }
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_asks_without_tls_needs_no_authorities() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi").unwrap();
        });
        let mut client = Client::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = runtime.block_on(client.send(http::Request::builder().uri(&url), String::new()));
        assert_eq!(answer.unwrap().body, b"hi");
        assert!(client.secure.is_none());
        server.join().unwrap();
    }
}
