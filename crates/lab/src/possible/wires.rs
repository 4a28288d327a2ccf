//! Whether this kernel can make the wires that contenders have of their own.

use linux::features::Facts;
use record::Underlay;

use crate::{Contender, LabError};

/// Says of contenders whose own wire this kernel cannot make why; an error where one is required.
pub(crate) fn leave_out(
    contenders: &mut [Contender],
    underlay: &Underlay,
    facts: &Facts,
) -> Result<(), LabError> {
    for contender in contenders.iter_mut().filter(|contender| !contender.ways.is_empty()) {
        let Err(why) = contender.wires(underlay).possible(facts) else { continue };
        if contender.required {
            // No topology can be built with such a wire, which is an error of its own.
            return Err(why);
        }
        contender.unmet.push(why.to_string());
    }
    Ok(())
}
