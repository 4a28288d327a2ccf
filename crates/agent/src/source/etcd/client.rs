//! A connection to one endpoint of an etcd: what leases need of its API.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use prost::Message;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::wire;
use super::{Failure, Login, Tls};

/// How long etcd may take for an answer. Its own limit for a request is seven seconds (five and twice an election's
/// timeout), after which it answers with an error that says more than ours.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may be silent until it is asked for a sign of life, and how long that may take. A watch is
/// silent for as long as nothing changes. etcd cuts connections that ask more often than every five seconds.
const SILENCE: Duration = Duration::from_secs(10);
const SIGN_PATIENCE: Duration = Duration::from_secs(5);
/// The longest message. A list of 10,000 nodes has about 4 MB.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A connection to one of etcd's members.
pub(super) struct Client {
    endpoint: String,
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
}

/// What a revision counts in: the store of one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) cluster_id: u64,
    pub(super) revision: i64,
}

/// The outcome of a transaction.
pub(super) struct Committed {
    pub(super) at: Moment,
    /// Whether all comparisons held; otherwise nothing was done.
    pub(super) succeeded: bool,
    /// What each range of it found.
    pub(super) found: Vec<Vec<wire::KeyValue>>,
}

/// The changes of some keys since some revisions, as they happen.
pub(super) struct Watch {
    endpoint: String,
    answers: Streaming<wire::Watched>,
}

pub(super) enum WatchReport {
    /// A watch stands: all changes since its revision will be reported.
    Created,
    Changed(Vec<wire::Event>),
    /// Changes are lost: they were compacted away before they could be reported.
    Compacted,
}

impl Client {
    /// Connects to an endpoint and, if there is a login, authenticates.
    pub(super) async fn connect(endpoint: &str, tls: &Tls, login: Option<&Login>) -> Result<Client, Failure> {
        let channel = prepared(endpoint, tls)
            .await?
            .connect()
            .await
            .map_err(|error| Failure::Connect { endpoint: endpoint.to_owned(), why: causes(&error) })?;
        let mut client = Client { endpoint: endpoint.to_owned(), channel, token: None };
        if let Some(Login { user, password }) = login {
            let login = wire::AuthenticateRequest { name: user.clone(), password: password.clone() };
            let answer: wire::Authenticated =
                client.call("the login", "/etcdserverpb.Auth/Authenticate", login).await?;
            client.token = answer.token.parse().ok();
        }
        Ok(client)
    }

    /// Does several operations at one revision, if all comparisons hold.
    pub(super) async fn commit(&self, transaction: wire::Transaction) -> Result<Committed, Failure> {
        let what =
            if transaction.compare.is_empty() { "the list of leases" } else { "the writing of a lease" };
        let answer: wire::TransactionAnswer = self.call(what, "/etcdserverpb.KV/Txn", transaction).await?;
        let header = answer.header.unwrap_or_default();
        Ok(Committed {
            at: Moment { cluster_id: header.cluster_id, revision: header.revision },
            succeeded: answer.succeeded,
            found: answer.answers.into_iter().filter_map(|answer| Some(answer.range?.kvs)).collect(),
        })
    }

    /// Asks for an etcd lease.
    pub(super) async fn grant(&self, ttl: Duration) -> Result<wire::Granted, Failure> {
        let ttl_s = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        self.call("the granting of a lease", "/etcdserverpb.Lease/LeaseGrant", wire::GrantRequest { ttl_s })
            .await
    }

    /// Gives an etcd lease back, and with it deletes the keys that have it.
    pub(super) async fn revoke(&self, id: i64) -> Result<(), Failure> {
        let revoke = wire::RevokeRequest { id };
        let wire::Nothing {} =
            self.call("the revoking of a lease", "/etcdserverpb.Lease/LeaseRevoke", revoke).await?;
        Ok(())
    }

    /// Watches keys, each from its revision on.
    pub(super) async fn watch(&self, watches: Vec<wire::WatchCreate>) -> Result<Watch, Failure> {
        let creates = watches.into_iter().map(|create| wire::WatchRequest { create: Some(create) });
        // etcd ends the watches when we end what we say to it.
        let requests = tokio_stream::iter(creates.collect::<Vec<_>>()).chain(tokio_stream::pending());
        let mut request = self.request(requests);
        // A member that is cut off from the others would let us wait for changes that it cannot see.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let mut grpc = self.grpc();
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let open = async {
            ready(&mut grpc).await?;
            grpc.streaming(request, path, ProstCodec::<wire::WatchRequest, wire::Watched>::default()).await
        };
        let answers = self.answer("the watch", open).await?;
        Ok(Watch { endpoint: self.endpoint.clone(), answers })
    }

    async fn call<Q, A>(&self, what: &'static str, path: &'static str, message: Q) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let request = self.request(message);
        let mut grpc = self.grpc();
        let call = async {
            ready(&mut grpc).await?;
            grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await
        };
        self.answer(what, call).await
    }

    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    async fn answer<A>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<Response<A>, Status>>,
    ) -> Result<A, Failure> {
        let endpoint = || self.endpoint.clone();
        match timeout(ANSWER_PATIENCE, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Failure::Refused { endpoint: endpoint(), what, why: reason(&status) }),
            Err(_) => Err(Failure::Late { endpoint: endpoint(), what, patience: ANSWER_PATIENCE }),
        }
    }
}

impl Watch {
    /// The next report. The call can be given up at any time, and nothing is lost.
    pub(super) async fn next(&mut self) -> Result<WatchReport, Failure> {
        let ended = |why| Failure::WatchEnded { endpoint: self.endpoint.clone(), why };
        let answer = self.answers.message().await.map_err(|status| ended(reason(&status)))?;
        let answer = answer.ok_or_else(|| ended("etcd closed it".to_owned()))?;
        match answer {
            wire::Watched { compact_revision: 1.., .. } => Ok(WatchReport::Compacted),
            wire::Watched { canceled: true, cancel_reason, .. } => Err(ended(cancel_reason)),
            wire::Watched { created: true, .. } => Ok(WatchReport::Created),
            wire::Watched { events, .. } => Ok(WatchReport::Changed(events)),
        }
    }
}

/// An endpoint, before it is connected to. The certificates are read each time: they are renewed while we run.
async fn prepared(endpoint: &str, tls: &Tls) -> Result<Endpoint, Failure> {
    let refused = |error: tonic::transport::Error| Failure::Connect {
        endpoint: endpoint.to_owned(),
        why: causes(&error),
    };
    let prepared = Endpoint::from_shared(endpoint.to_owned())
        .map_err(refused)?
        .connect_timeout(CONNECT_PATIENCE)
        .http2_keep_alive_interval(SILENCE)
        .keep_alive_timeout(SIGN_PATIENCE)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    if prepared.uri().scheme_str() != Some("https") {
        return Ok(prepared);
    }
    let mut config = ClientTlsConfig::new();
    config = match &tls.ca {
        Some(ca) => config.ca_certificate(Certificate::from_pem(read(ca).await?)),
        None => config.with_native_roots(),
    };
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(read(certificate).await?, read(key).await?));
    }
    prepared.tls_config(config).map_err(refused)
}

async fn read(path: &std::path::Path) -> Result<Vec<u8>, Failure> {
    tokio::fs::read(path).await.map_err(|source| Failure::File { path: path.to_owned(), source })
}

async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready().await.map_err(|error| Status::unavailable(causes(&error)))
}

/// What a status says. Where it stands for an error of the connection, that error gives the reason.
fn reason(status: &Status) -> String {
    match status.source() {
        Some(source) => causes(source),
        None => status.message().to_owned(),
    }
}

/// An error with all that it was caused by: `transport error: tcp connect error: Connection refused (os error 111)`.
fn causes(error: &dyn Error) -> String {
    let mut texts = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts.dedup();
    texts.join(": ")
}
