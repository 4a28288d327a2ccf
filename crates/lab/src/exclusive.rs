//! Exclusive use of this machine for a measurement, after cleaning up what dead races left.

use std::sync::atomic::{AtomicBool, Ordering};

use plan::Unit;

use crate::home::{Cleaned, Home};
use crate::{Event, LabError};

/// Takes the machine if no other race has it, clears it, and does the work under a claim.
///
/// # Errors
/// [`LabError::Busy`]: another race has it.
pub(crate) fn at_once<E: From<Event>, T>(
    home: &Home,
    emit: &mut dyn FnMut(E),
    work: impl FnOnce(&Unit, &mut dyn FnMut(E)) -> Result<T, LabError>,
) -> Result<T, LabError> {
    let mut pid = 0;
    // It stops at the first look.
    let taken = home.exclusive(|holder| pid = holder, || true)?;
    let _exclusive = taken.ok_or(LabError::Busy { pid })?;
    clear(home, emit)?;
    under_claim(home, emit, work)
}

/// Waits for the machine, clears it, and does the work under a claim. `None` if asked to stop while waiting.
pub(crate) fn in_turn<E: From<Event>, T>(
    home: &Home,
    stop: &AtomicBool,
    emit: &mut dyn FnMut(E),
    work: impl FnOnce(&Unit, &mut dyn FnMut(E)) -> Result<T, LabError>,
) -> Result<Option<T>, LabError> {
    let stopped = || stop.load(Ordering::Relaxed);
    let Some(_exclusive) = home.exclusive(|pid| emit(Event::Waiting { pid }.into()), stopped)? else {
        return Ok(None);
    };
    // After the wait: the race before may have died.
    clear(home, emit)?;
    under_claim(home, emit, work).map(Some)
}

/// Removes what dead races left, and says of each whether all of it is gone.
fn clear<E: From<Event>>(home: &Home, emit: &mut dyn FnMut(E)) -> Result<(), LabError> {
    for Cleaned { id, failures, .. } in home.clean()? {
        let event =
            if failures.is_empty() { Event::CleanedUp { id } } else { Event::NotCleanedUp { id, failures } };
        emit(event.into());
    }
    Ok(())
}

fn under_claim<E, T>(
    home: &Home,
    emit: &mut dyn FnMut(E),
    work: impl FnOnce(&Unit, &mut dyn FnMut(E)) -> Result<T, LabError>,
) -> Result<T, LabError> {
    let claim = home.claim()?;
    let result = work(&claim, emit);
    let released = claim.end();
    // Reports the first error: the other follows from it.
    let done = result?;
    released?;
    Ok(done)
}
