//! Attachments on the real kernel: a node, its wire, and containers in namespaces of their own. And what needs no
//! kernel: the choice that a race makes.

mod announced;
mod attachments;
mod beside;
mod bridges;
mod chain;
mod chains;
mod choice;
mod datagrams;
mod delegates;
mod devices;
mod dhcp;
mod drift;
mod dropin;
mod earlier;
mod families;
mod faults;
mod gc;
mod guarded;
mod host_link;
mod install;
mod limits;
#[path = "../../../report/tests/it/lost.rs"]
mod lost;
#[path = "../../../report/tests/it/made.rs"]
mod made;
mod moved_address;
mod routes;
mod scene;
mod services;
mod subnets;
mod taking_back;
mod verbs;
mod wanted;
