//! Exclusive use of this machine for a measurement, after cleaning up what dead races left.

use std::sync::atomic::{AtomicBool, Ordering};

use plan::Unit;

use crate::home::Home;
use crate::{Event, LabError};

/// Takes the machine if no other race has it, clears it, and does the work under a claim.
pub(crate) fn at_once<E, T>(
    home: &Home,
    emit: &mut dyn FnMut(E),
    work: impl FnOnce(&Unit, &mut dyn FnMut(E)) -> Result<T, LabError>,
) -> Result<T, LabError> {
    let mut pid = 0;
    // It stops at the first look.
    let taken = home.exclusive(|holder| pid = holder, || true)?;
    let _exclusive = taken.ok_or(LabError::Busy { pid })?;
    home.clean()?;
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
    for cleaned in home.clean()? {
        emit(Event::CleanedUp { id: cleaned.id }.into());
    }
    under_claim(home, emit, work).map(Some)
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
