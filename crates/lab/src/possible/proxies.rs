//! Whether the programs of a contender's proxies are there.

use std::path::Path;

use linux::features::{Facts, Feature};

use crate::candidate::find;
use crate::{Contender, LabError, ProxyProgram};

/// Says of contenders whose proxies are not there, or cannot be led to, why; an error where one is required.
pub(crate) fn leave_out(
    contenders: &mut [Contender],
    nginx: Option<&Path>,
    facts: &Facts,
) -> Result<(), LabError> {
    for contender in contenders.iter_mut().filter(|contender| !contender.proxy.is_empty()) {
        let kinds = contender.proxy.both().into_iter().flatten();
        let mut why: Vec<String> = kinds.filter_map(|kind| ProxyProgram::find(kind, nginx).err()).collect();
        let mut needs = vec![Feature::Nftables];
        if contender.proxy.splice {
            needs.extend(find("ebpf+sockmap")?.needs());
        }
        why.extend(facts.unmet(&needs).iter().map(ToString::to_string));
        why.dedup();
        contender.cannot(why)?;
    }
    Ok(())
}
