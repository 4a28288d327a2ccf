//! The messages of etcd's API (version 3) that leases need, by the numbers of their fields in `rpc.proto` and
//! `kv.proto`. Fields that are left out are skipped in answers, and have their default in requests.
//!
//! They are written down here and not generated: generating needs `protoc` on each machine that builds.
//! <https://github.com/etcd-io/etcd/blob/v3.5.16/api/etcdserverpb/rpc.proto>

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Header {
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    /// The store's revision when the request was applied.
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    /// The etcd lease with which the key ends; 0 is none.
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// The first key that is not meant any more; empty if only `key` is.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DeleteRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
}

/// One of these; on the wire that is the same as fields of which one is there.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Operation {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeRequest>,
    #[prost(message, optional, tag = "2")]
    pub(super) put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    pub(super) delete: Option<DeleteRequest>,
}

/// The answer to an operation, of which only that to a range is of interest.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Answer {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeResponse>,
}

/// Whether a key was changed since a revision. It was never written, or is deleted, if that is 0.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Compare {
    /// 2 is "the revision of the last change".
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(int64, optional, tag = "6")]
    pub(super) mod_revision: Option<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Transaction {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<Operation>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TransactionAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) answers: Vec<Answer>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl_s: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Granted {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(int64, tag = "3")]
    pub(super) ttl_s: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RevokeRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Nothing {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Authenticated {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<WatchCreate>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Watched {
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    /// Not 0 if changes since the asked-for revision have been compacted away: the first that is still there.
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Event {
    /// 0 is "put", 1 is "deleted".
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}
