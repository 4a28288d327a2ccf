//! The structures of `forward.h` that are written here as bytes lie in memory as the programs were compiled with.

use std::mem::offset_of;

use super::skeleton::types::{endpoint, home, prefix, slot4, slot6, tunnel};

/// A structure's fields in their order, each with its length in bytes: there is nothing between them and nothing behind.
macro_rules! lies_as {
    ($structure:ident: $($field:ident $bytes:literal),+) => {
        const _: () = {
            let mut at = 0;
            $(
                assert!(offset_of!($structure, $field) == at, stringify!($field));
                at += $bytes;
            )+
            assert!(size_of::<$structure>() == at, stringify!($structure));
        };
    };
}

lies_as!(endpoint: ifindex 4, mac 6, unused 2);
lies_as!(slot4: pod 12, address 4);
lies_as!(slot6: pod 12, unused 4, address 16);
lies_as!(prefix: bits 4, address 16);
lies_as!(tunnel: ifindex 4, family 4, remote 16);
const _: () = assert!(size_of::<home>() == 4, "a word");
