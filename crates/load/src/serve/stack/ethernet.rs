//! The header of Ethernet frames, as far as a stack of our own knows it.

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;
/// The numbers of IP in it, in network order.
pub(super) const IPV4: [u8; 2] = [0x08, 0x00];
pub(super) const IPV6: [u8; 2] = [0x86, 0xdd];

/// An Ethernet address.
pub(super) type Mac = [u8; 6];
