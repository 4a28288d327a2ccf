//! A slice that does not count is held again.

use record::Void;

use crate::void::breaks;
use crate::{Event, LabError};

/// A slice that does not count is repeated at most so often. Then the candidate goes without it, and the report says
/// so, or it is broken if it never answered.
pub(crate) const REPEATS: usize = 2;

/// Holds a slice, and again while it is void, as often as a trial is repeated: one without answers may be the machine's
/// doing. A candidate that answers in none of them is broken.
pub(crate) fn until_answered<T>(
    candidate: &str,
    emit: &mut dyn FnMut(Event),
    mut slice: impl FnMut() -> Result<(T, Option<Void>), LabError>,
) -> Result<T, LabError> {
    let mut repeats = REPEATS;
    loop {
        let (kept, void) = slice()?;
        let Some((what, why)) = void.and_then(|why| Some((breaks(&why)?, why))) else { return Ok(kept) };
        emit(Event::Voided { name: candidate.to_owned(), why });
        if repeats == 0 {
            return Err(LabError::Broken { candidate: candidate.to_owned(), what });
        }
        repeats -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of slices, the first of which have no answers, and how many there were.
    fn sliced(unanswered: usize) -> (Result<usize, LabError>, usize, usize) {
        let (mut slices, mut voided) = (0, 0);
        let none =
            || Void::Unanswered { sent: 4, intended: 4, unanswered: 4, unexpected: 0, connection_errors: 0 };
        let outcome = until_answered(
            "a",
            &mut |event| voided += usize::from(matches!(event, Event::Voided { .. })),
            || {
                slices += 1;
                Ok((slices, (slices <= unanswered).then(none)))
            },
        );
        (outcome, slices, voided)
    }

    #[test]
    fn who_answers_in_a_later_slice_is_not_broken() {
        assert!(matches!(sliced(0), (Ok(1), 1, 0)));
        assert!(matches!(sliced(2), (Ok(3), 3, 2)));
        let (outcome, slices, voided) = sliced(usize::MAX);
        assert_eq!((slices, voided), (3, 3));
        let Err(LabError::Broken { candidate, what }) = outcome else { panic!("{outcome:?}") };
        assert!(candidate == "a" && what.starts_with("4 of 4 requests"), "{what}");
    }
}
