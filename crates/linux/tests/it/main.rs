//! The wrappers of the kernel's interfaces against the real kernel: namespaces of our own, real packets, and
//! `ip` and `bridge` as judges. Needs root.

mod cgroup;
mod conntrack;
mod features;
mod ingress;
mod netlink;
mod netns;
mod nft;
mod offloads;
mod perf;
mod process;
mod proxy;
mod qdisc;
mod rdma;
mod steering;
mod tcp_probe;
mod tunnel;
mod view;
mod wireguard;
mod world;
mod xfrm;
