//! Where a node keeps what it must not lose.

use std::io;
use std::path::{Path, PathBuf};

use cni::Failure;
use plan::{Book, Fault, Kernel};

use crate::failures::refused;
use crate::numbers::Numbers;

/// The directories of a node.
#[derive(Debug, Clone)]
pub struct Home {
    run: PathBuf,
    leases: PathBuf,
    fault: Fault,
}

impl Home {
    /// The machine's own. What stands until the machine is restarted is in `/run/hostgap`; addresses are where the CNI
    /// project's host-local keeps them, `/var/lib/cni/networks`.
    pub fn of_this_machine() -> Home {
        Home::at("/run/hostgap", "/var/lib/cni/networks")
    }

    /// Other directories, for tests.
    pub fn at(run: impl Into<PathBuf>, leases: impl Into<PathBuf>) -> Home {
        Home { run: run.into(), leases: leases.into(), fault: Fault::None }
    }

    /// The same, on which every call fails where this fault strikes.
    #[must_use]
    pub fn with_fault(self, fault: Fault) -> Home {
        Home { fault, ..self }
    }

    /// The kernel of the calling thread's namespace.
    pub(crate) fn kernel(&self) -> Result<Kernel, Failure> {
        let mut kernel = Kernel::new().map_err(|error| refused(&error))?.keeping_announced_routes();
        kernel.inject(self.fault);
        Ok(kernel)
    }

    /// What processes lock that install the plugin or remove it.
    pub(crate) fn install_lock(&self) -> PathBuf {
        self.run.join("install.lock")
    }

    /// What stands once for each network.
    pub(crate) fn networks(&self) -> Book {
        Book::at(self.run.join("cni-networks"))
    }

    /// What stands for each attachment of a container.
    pub(crate) fn attachments(&self) -> Book {
        Book::at(self.run.join("cni-attachments"))
    }

    /// What stands once for each network over many nodes.
    pub fn node_networks(&self) -> Book {
        Book::at(self.run.join("agent"))
    }

    /// The numbers of which a network over many nodes makes the names of its links on this node, the same as long as
    /// the machine runs. `what` distinguishes links of one network.
    ///
    /// # Errors
    /// The directory of numbers cannot be written.
    pub fn number_of_link(&self, network: &str, what: &str) -> io::Result<u16> {
        Numbers::at(self.network_numbers()).take(&holder_of_link(network, what))
    }

    /// The number that [`Home::number_of_link`] would give. Nothing is written.
    ///
    /// # Errors
    /// The directory of numbers cannot be read.
    pub fn preview_number_of_link(&self, network: &str, what: &str) -> io::Result<u16> {
        Numbers::at(self.network_numbers()).preview(&holder_of_link(network, what))
    }

    /// Numbers of networks, of which names are made.
    pub(crate) fn network_numbers(&self) -> PathBuf {
        self.run.join("cni-numbers/networks")
    }

    /// Numbers of attachments, over all networks.
    pub(crate) fn attachment_numbers(&self) -> PathBuf {
        self.run.join("cni-numbers/attachments")
    }

    /// The directory of addresses, one for each network in it.
    pub(crate) fn leases(&self) -> &Path {
        &self.leases
    }
}

fn holder_of_link(network: &str, what: &str) -> String {
    format!("{network}.agent-{what}")
}
