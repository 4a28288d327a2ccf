//! The structures of `forward.h` that are written here as bytes lie in memory as the programs were compiled with.

use super::skeleton::types::{endpoint, home, prefix, slot4, slot6, tunnel, uplink};
use crate::layout::lies_as;

lies_as!(endpoint: ifindex 4, mac 6, queued 2);
lies_as!(slot4: pod 12, address 4);
lies_as!(slot6: pod 12, unused 4, address 16);
lies_as!(prefix: bits 4, address 16);
lies_as!(tunnel: ifindex 4, family 4, remote 16);
lies_as!(uplink: used_ns 8);
const _: () = assert!(size_of::<home>() == 4, "a word");
