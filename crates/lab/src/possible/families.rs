//! Whether clients can call by the race's version of IP.

use record::Side;

use crate::family::family;
use crate::{Contender, LabError};

/// Says of contenders whose pods no client could call why; an error where one is required.
pub(crate) fn leave_out(contenders: &mut [Contender], ipv6: bool) -> Result<(), LabError> {
    for contender in contenders {
        contender.cannot(unmet(contender, ipv6).map(str::to_owned))?;
    }
    Ok(())
}

/// Why no client could call it; a server on its node without a container is called as any of the node.
pub(crate) fn unmet(contender: &Contender, ipv6: bool) -> Option<&'static str> {
    let why = contender.path.attach.refuses_callers(family(ipv6));
    why.filter(|_| contender.in_container != Side::Client)
}
