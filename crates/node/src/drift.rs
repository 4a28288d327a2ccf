//! What a network's containers share, as its journal has it: whether it is still so, and how it becomes so again
//! when another program has taken some of it away. `nft flush ruleset` is such a program, and many a system's
//! firewall begins with it.

use std::path::PathBuf;

use cni::Failure;
use plan::{ApplyError, BookError, Drift, Keeper, Kernel, Plan, Unit};

use crate::Home;
use crate::failures::{of_book, of_journal, refused};
use crate::network_unit::NetworkUnit;

/// The name of a unit's journal.
pub(crate) const JOURNAL: &str = "network";

/// The journal of what a network's pods share.
pub(crate) fn journal(home: &Home, network: &NetworkUnit) -> PathBuf {
    home.networks().path().join(network.id()).join(format!("{JOURNAL}.journal"))
}

/// What a network's pods share, as its journal says at the moment; `None`: it has none. It takes no
/// lock, since many containers are checked and added at once.
pub(crate) fn made(home: &Home, network: &NetworkUnit) -> Result<Option<Plan>, Failure> {
    Keeper::intended(&home.networks(), &network.id(), JOURNAL).map_err(|error| refused(&error))
}

/// The first thing of it that is no longer so. It is asked of the kernel thing by thing: with hundreds of containers a
/// list of links alone would take longer.
pub(crate) fn drift(
    home: &Home,
    network: &NetworkUnit,
    kernel: &mut Kernel,
) -> Result<Option<Drift>, Failure> {
    let Some(made) = made(home, network)? else { return Ok(None) };
    plan::drift(&made, kernel).map_err(|error| refused(&error))
}

/// Makes a network that stands as it was made; what was otherwise. `None`: another process is at it.
///
/// # Errors
/// It cannot be made so again; what is otherwise is in the failure.
pub(crate) fn mend(
    home: &Home,
    network: &NetworkUnit,
    kernel: &mut Kernel,
) -> Result<Option<Vec<Drift>>, Failure> {
    let Some(drift) = drift(home, network, kernel)? else { return Ok(Some(Vec::new())) };
    match home.networks().take_over(&network.id()) {
        Ok(unit) => mend_held(&unit, kernel).map(Some).map_err(|failure| {
            let of = format!("network {network} is no longer as it was made: {drift}");
            let details = failure.details.iter().cloned().chain([of]).collect::<Vec<_>>().join("; ");
            Failure { details: Some(details), ..failure }
        }),
        Err(BookError::Held { .. } | BookError::Unknown { .. }) => Ok(None),
        Err(error) => Err(of_book(&error)),
    }
}

fn mend_held(unit: &Unit, kernel: &mut Kernel) -> Result<Vec<Drift>, Failure> {
    let mut journal = unit.journal_or_new(JOURNAL).map_err(|error| of_journal(&error))?;
    plan::mend(&mut journal, kernel).map_err(|error| match error {
        ApplyError::Journal(error) => of_journal(&error),
        error => refused(&error),
    })
}
