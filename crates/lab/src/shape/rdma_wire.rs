//! The wire of RDMA devices beside that of the nodes: names and addresses of its two ends.

use std::net::Ipv4Addr;

use datapath::SocketRole;
use linux::{IfName, RdmaName};
use record::StackKind;

/// A wire of a candidate between two devices of software RoCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RdmaWire {
    /// Which of the candidates it is of: no two have the same, so that their names and addresses differ.
    pub number: u8,
}

impl RdmaWire {
    /// The wire of a candidate on such a stack, if its messages go by verbs; `number` says its place among the
    /// candidates. It is not asked for others: those of a search have no such place.
    ///
    /// # Panics
    /// If more candidates stand than can.
    pub fn of(kind: StackKind, number: impl FnOnce() -> usize) -> Option<RdmaWire> {
        (kind == StackKind::Verbs)
            .then(|| RdmaWire { number: u8::try_from(number()).expect("far fewer candidates can stand") })
    }

    /// The end of the wire on a side.
    pub fn link(self, part: SocketRole) -> IfName {
        IfName::new(format!("hgr{}{}", self.number, letter(part))).expect("a short name is valid")
    }

    /// The device on a side.
    pub fn device(self, part: SocketRole) -> RdmaName {
        RdmaName::new(format!("hgrxe{}{}", self.number, letter(part))).expect("a short name is valid")
    }

    /// The address of a side, of those that are for benchmarks (RFC 2544).
    pub fn address(self, part: SocketRole) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.number, RdmaWire::number_of(part))
    }

    /// 1 of the client's side, 2 of the server's.
    pub(crate) fn number_of(part: SocketRole) -> u8 {
        match part {
            SocketRole::Client => 1,
            SocketRole::Server => 2,
        }
    }
}

fn letter(part: SocketRole) -> char {
    match part {
        SocketRole::Client => 'c',
        SocketRole::Server => 's',
    }
}
