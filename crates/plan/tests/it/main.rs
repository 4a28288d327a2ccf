//! Plans on the real kernel, in namespaces of their own.

mod book;
mod card;
mod ensure;
mod extended;
mod faults;
mod format2;
mod guard;
mod identity;
mod keeper;
mod killed;
mod look;
mod netkit;
mod node_with_pod;
mod outcomes;
mod path;
mod programs;
mod qdisc;
mod read_only;
mod reconcile;
mod sample;
mod scene;
mod service;
mod share;
mod show;
mod splice;
mod transactions;
