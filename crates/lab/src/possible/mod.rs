//! Which contenders can race here: each is asked before the first change, and one that cannot gets the reason
//! ([`Contender::cannot`](crate::Contender)).
//!
//! What this kernel lacks for a data path or a stack is known before, when contenders are made, and whether it takes
//! their settings is tried by [`crate::prove`]. Here is what depends on the race: filters, wires, proxies, relays,
//! datagrams, cards, other machines. What a data path's control group forbids is asked of a planned topology, by the
//! race itself.

pub(crate) mod cards;
pub(crate) mod datagrams;
pub(crate) mod machines;
pub(crate) mod packets;
pub(crate) mod proxies;
pub(crate) mod relays;
pub(crate) mod verbs;
pub(crate) mod wires;

pub use self::cards::prove_on_cards;
