//! The programs that the packets of a network's containers meet on the node, as its journal has them.

use cni::Failure;
use plan::forwarding::{Guard, Programs};
use plan::{JournalError, Keeper, Step, UnitState};

use crate::Home;
use crate::drift::JOURNAL;
use crate::failures::{of_book, refused};
use crate::network_unit::NetworkUnit;

/// Programs that the containers of a network share, with what they were loaded with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedPrograms {
    /// They forward packets.
    Forwarding(Programs),
    /// It checks what containers send, where the kernel forwards.
    Guard(Guard),
}

impl SharedPrograms {
    /// The name under which they are pinned.
    pub fn node(&self) -> &str {
        match self {
            SharedPrograms::Forwarding(Programs { node, .. }) | SharedPrograms::Guard(Guard { node }) => node,
        }
    }

    /// Whether this process sees them, as one in a container may not.
    pub fn are_seen(&self) -> bool {
        match self {
            SharedPrograms::Forwarding(programs) => programs.folder().exists(),
            SharedPrograms::Guard(guard) => guard.folder().exists(),
        }
    }

    fn of(step: Step) -> Option<SharedPrograms> {
        match step {
            Step::LoadPrograms(programs) => Some(SharedPrograms::Forwarding(programs)),
            Step::LoadGuard(guard) => Some(SharedPrograms::Guard(guard)),
            _ => None,
        }
    }
}

impl Home {
    /// The name of the programs that forward packets of a network's containers on this node; `None`: there are none, or
    /// this process does not see them, as one in a container.
    ///
    /// # Errors
    /// The journal of the network cannot be read.
    pub fn programs_of(&self, network: &str) -> Result<Option<String>, JournalError> {
        let id = NetworkUnit::new(network, None).id();
        let forwarding = self.loaded_by(&id)?.find_map(|programs| match programs {
            SharedPrograms::Forwarding(programs) => Some(programs),
            SharedPrograms::Guard(_) => None,
        });
        Ok(forwarding.filter(|programs| programs.folder().exists()).map(|programs| programs.node))
    }

    /// The programs of what stands of a network on this node, or of all networks; also those that this process does not
    /// see. What another process is just making or taking back is not among them.
    ///
    /// # Errors
    /// The book of networks or a journal cannot be read.
    pub fn shared_programs(&self, network: Option<&str>) -> Result<Vec<SharedPrograms>, Failure> {
        let mut found = Vec::new();
        for unit in self.networks().units().map_err(|error| of_book(&error))? {
            let is_meant = NetworkUnit::from_id(&unit.id)
                .is_some_and(|of| network.is_none_or(|network| of.network() == network));
            if is_meant && unit.state == UnitState::Standing {
                found.extend(self.loaded_by(&unit.id).map_err(|error| refused(&error))?);
            }
        }
        Ok(found)
    }

    fn loaded_by(&self, id: &str) -> Result<impl Iterator<Item = SharedPrograms> + use<>, JournalError> {
        let plan = Keeper::part(&self.networks(), id, JOURNAL)?.unwrap_or_default();
        Ok(plan.steps.into_iter().filter_map(|placed| SharedPrograms::of(placed.step)))
    }
}
