//! Whether the processes that carry the connections of rootless pods can carry those of the race.

use linux::features::Feature;
use record::{Side, Workload, WorkloadKind};

use crate::family::family;
use crate::{Contender, LabError};

/// Says of contenders whose pods no client could call, or not by this workload, why; an error where one is required.
pub(crate) fn leave_out(contenders: &mut [Contender], workload: &Workload) -> Result<(), LabError> {
    for contender in contenders {
        let unheard = of_streams(contender, workload.kind).into_iter();
        contender.cannot(uncalled(contender, workload.ipv6).into_iter().chain(unheard).map(str::to_owned))?;
    }
    Ok(())
}

/// Why no client could call it; a server on its node without a container is called as any of the node.
pub(crate) fn uncalled(contender: &Contender, ipv6: bool) -> Option<&'static str> {
    let why = contender.path.attach.refuses_callers(family(ipv6));
    why.filter(|_| contender.in_container != Side::Client)
}

/// A receiver of a stream accepts all connections before the first byte is sent.
fn of_streams(contender: &Contender, kind: WorkloadKind) -> Option<&'static str> {
    let is_pasta = contender.path.needs().contains(&Feature::Pasta) && contender.in_container != Side::Client;
    (is_pasta && kind == WorkloadKind::TcpStream).then_some(
        "pasta may lead a connection to its pod with the client's first byte, and a receiver of streams accepts before that",
    )
}
