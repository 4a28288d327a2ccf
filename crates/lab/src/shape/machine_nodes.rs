//! Machines as the nodes of a topology, and the links between them.

use std::net::IpAddr;

use datapath::SocketRole;
use linux::IfName;
use serde::{Deserialize, Serialize};

/// A link of a machine with addresses for the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineLink {
    /// The name of the link on its machine.
    pub name: IfName,
    /// The MTU of the link in bytes.
    pub mtu: u32,
    /// Those of a family in the order in which they are used.
    pub addresses: Vec<IpAddr>,
    /// The number of its receive queues.
    pub rx_queues: u16,
    /// The number of its send queues.
    pub tx_queues: u16,
    /// What it is and does, for a reader.
    pub card: String,
}

/// Machines as the nodes of a topology, and which of their networks it is: one serves, one or more load it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineNodes {
    /// The links by which the clients' machines reach the server's; that of the machine that leads comes first.
    pub clients: Vec<MachineLink>,
    /// Which of them the topology is planned for.
    pub client: usize,
    /// The link by which the server's machine reaches the clients'.
    pub server: MachineLink,
    /// The candidate's, from 0, at most [`MachineNodes::NUMBER_MAX`]: names, addresses and ports come from it.
    pub number: u16,
}

impl MachineNodes {
    /// 198.18.0.0/15 has 512 networks of 256 addresses.
    pub const NUMBER_MAX: u16 = 511;
    /// The clients share half of such a network: with so many each has four addresses, the fewest that have room for a
    /// pod and its gateway.
    pub const CLIENTS_MAX: usize = 32;

    /// The same as one of the clients' machines plans it.
    #[must_use]
    pub(crate) fn for_client(&self, client: usize) -> MachineNodes {
        MachineNodes { client, ..self.clone() }
    }

    /// The link of a side's machine, of the client for which the topology is planned.
    pub(crate) fn end(&self, part: SocketRole) -> &MachineLink {
        match part {
            SocketRole::Client => &self.clients[self.client],
            SocketRole::Server => &self.server,
        }
    }

    /// By how many bits the prefix of a client's pods is longer than the half that all clients share.
    pub(crate) fn client_bits(&self) -> u8 {
        let bits = self.clients.len().next_power_of_two().trailing_zeros();
        u8::try_from(bits).expect("there are few clients")
    }

    /// The number of its network on both machines, which may have networks of others: those have low numbers.
    pub(crate) fn network(&self) -> u16 {
        60_000 + self.number
    }

    /// The port of the server's machine by which a server is called there.
    pub(crate) fn port(&self) -> u16 {
        18_000 + self.number
    }

    /// The UDP port of its tunnel on both machines.
    pub(crate) fn tunnel_port(&self) -> u16 {
        19_000 + self.number
    }

    /// The MTU of the ways, as far as their ends know it, in bytes: the same for all clients.
    pub(crate) fn mtu_bytes(&self) -> u32 {
        self.clients.iter().map(|client| client.mtu).fold(self.server.mtu, u32::min)
    }
}
