//! Interfaces of the Linux kernel, readers and setters, one module for each kind of object.
//!
//! This crate holds no policy, no journal and no undo. A verb does one thing, and its error states what failed, on
//! which object, and why. `setns` is called in [`netns`] and nowhere else in the project.

mod announce;
mod cookie;
mod device;
mod error;
mod files;
mod link;
mod login;
mod mapping;
mod mountinfo;
mod names;
mod native;
mod neighbour;
mod new_netns;
mod number;
mod route;
mod secret;
mod wireguard;
mod xfrm;

pub mod cgroup;
pub mod clock;
pub mod cpu;
pub mod debugfs;
pub mod ethtool;
pub mod features;
pub mod folder;
pub mod icmp;
pub mod interrupts;
pub mod latency;
pub mod module;
pub mod napi;
pub mod netlink;
pub mod netns;
pub mod nft;
pub mod nic;
pub mod ovs;
pub mod perf;
pub mod power;
pub mod process;
pub mod procfs;
pub mod qdisc;
pub mod rdma;
pub mod session;
pub mod sock_diag;
pub mod stamps;
pub mod sysctl;
pub mod sysfs;
pub mod tcp_probe;
pub mod throttle;
pub mod tree;
pub mod view;
pub mod vring;
pub mod xdp;
pub mod xtables;

pub use announce::announce;
pub use cgroup::Cgroup;
pub use cookie::{netns_of_device, visible_cookies};
pub use cpu::CpuSet;
pub use device::{Device, RxQueue, Slot, TxQueue};
pub use error::{Error, Result};
pub use files::Files;
pub use link::{IpvlanMode, Link, LinkKind, MacvlanMode, VethPeer, Vxlan};
pub use login::Login;
pub use names::{IfName, Mac, NameError, NetnsName, NetnsPath, NetnsRef};
pub use neighbour::{FdbEntry, Neighbour};
pub use netlink::Netlink;
pub use netns::Netns;
pub use qdisc::Qdisc;
pub use rdma::{RdmaLink, RdmaName};
pub use route::{Encap, Route};
pub use wireguard::{PrivateKey, PublicKey, WireGuardPeer};
pub use xfrm::{EspKey, EspTunnel, Spi, XfrmDirection, XfrmPolicy, XfrmState};
