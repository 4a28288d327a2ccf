//! Structures that are written or read as bytes, compared with how they lie in memory as the programs
//! were compiled with them.

/// A structure's fields in their order, each with its length in bytes: there is nothing between
/// them and nothing behind.
macro_rules! lies_as {
    ($structure:ident: $($field:ident $bytes:literal),+) => {
        const _: () = {
            let mut at = 0;
            $(
                assert!(std::mem::offset_of!($structure, $field) == at, stringify!($field));
                at += $bytes;
            )+
            assert!(size_of::<$structure>() == at, stringify!($structure));
        };
    };
}
pub(crate) use lies_as;
