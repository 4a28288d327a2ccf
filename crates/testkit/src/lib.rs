//! What tests share: namespaces, dumps of their state, and skips that are counted.
//!
//! Tests that use it work on the real kernel, as root, in namespaces of their own.

mod cards;
mod cpu_quota;
mod deferred;
mod dump;
mod etcd;
mod flood;
mod judge;
mod noise;
mod packets;
mod port;
mod rdma;
mod redirect;
mod skip;
mod talk;
mod wire;
mod world;

pub use cards::{Cards, card, set_card_up, settle_card};
pub use cpu_quota::CpuQuota;
pub use deferred::defer;
pub use dump::{Dump, dump, quick_dump};
pub use etcd::Etcd;
pub use flood::{Flood, dear_rules};
pub use judge::{run, shell};
pub use noise::noise;
pub use packets::{Captured, Offload, PacketSocket};
pub use port::bound;
pub use rdma::has_software_roce;
pub use redirect::has_redirects;
pub use skip::skip;
pub use talk::Talk;
pub use wire::Wire;
pub use world::{World, require_root};
