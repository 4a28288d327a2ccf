//! Steps that are done again without a line in their journal, since it has the way back from them already.

use crate::apply::in_step;
use crate::entry::{After, Before, Entry, Intent};
use crate::error::ApplyError;
use crate::{Journal, Kernel, Placed, Step};

/// Does a step again of which the journal says all that undo must know. False if it does not: nothing was done then.
pub(crate) fn is_repeated(
    placed: &Placed,
    earlier: &[Intent],
    journal: &Journal,
    kernel: &mut Kernel,
) -> Result<bool, ApplyError> {
    let [Intent { seq, placed: same, netns_cookie: Some(cookie), before }] = earlier else {
        return Ok(false);
    };
    let as_planned = Entry::Done { seq: *seq, after: After::AsPlanned };
    let (effect, place) = (placed.step.effect(), &placed.place);
    let is_here = kernel.at(place).map_err(|error| in_step(placed, error.into()))?.cookie == *cookie;
    if same != placed || !is_here || !journal.entries().contains(&as_planned) {
        return Ok(false);
    }
    let repeated = match (before, &placed.step) {
        // What is put back some day was found before the first unit came, whoever has set it since.
        (Before::Shared { .. }, Step::Share(step)) if matches!(**step, Step::Set(_)) => {
            let effect = step.effect();
            effect.before(kernel, place).and_then(|now| effect.act(kernel, place, &now))
        }
        (Before::Shared { .. }, _) => effect.act(kernel, place, before),
        (Before::Absent, _) if effect.before(kernel, place).is_ok_and(|now| now == Before::Absent) => {
            effect.act(kernel, place, before).and_then(|()| effect.after(kernel, place, before)).map(drop)
        }
        _ => return Ok(false),
    };
    repeated.map(|()| true).map_err(|why| in_step(placed, why))
}

/// Whether what a step sets is put back, whoever has set it since, to what was found before the first unit came. A
/// journal with such a step keeps its lines, and one for each time that another program sets it would fill the memory.
pub(crate) fn is_shared_setting(placed: &Placed) -> bool {
    matches!(&placed.step, Step::Share(step) if matches!(**step, Step::Set(_)))
}
