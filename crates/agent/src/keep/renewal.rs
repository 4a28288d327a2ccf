//! Programs that an earlier version has left, and this one's in their place: what a release mends in them is mended for
//! pods that stand, too.

use node::SharedPrograms;
use plan::forwarding::ServicePrograms;
use plan::{Kernel, Place, StepError};
use tracing::{info, warn};

use super::KeptNode;
use crate::desired::ServicesPlace;
use crate::settings::Settings;

impl KeptNode {
    /// Gives the programs that another build has left this one's place. Pods and Services stay, and neither packets nor
    /// sockets notice anything. What cannot be replaced goes on as it is.
    pub(super) fn renew_programs(&mut self) {
        renew_services(&self.settings);
        let found = self.home.shared_programs(Some(&self.settings.network));
        let why = found.as_ref().err().map(ToString::to_string);
        self.reasons.say_if_new("find the programs that pods share", why.as_deref());
        for programs in found.unwrap_or_default() {
            self.renew(&programs);
        }
    }

    fn renew(&mut self, programs: &SharedPrograms) {
        let (node, what) = (programs.node(), what(programs));
        let why_not = if programs.are_seen() {
            match replaced_at(programs, &mut self.kernel) {
                Ok(None) => None,
                Ok(Some(links)) => {
                    info!(node, links, "{what} are this version's now");
                    None
                }
                Err(error) => Some(format!(
                    "they go on as another version has made them: {error}; `hostgap bpf replace {node}` tries again, and when \
                     the network's last pod on this node is gone, the next one gets this version's"
                )),
            }
        } else {
            Some(format!(
                "they are not seen from here, and stay those of the version that loaded them; on the node, \
                 `hostgap-cli bpf replace {node}` replaces them"
            ))
        };
        self.reasons.say_if_new(&format!("{what} ({node})"), why_not.as_deref());
    }
}

/// The links at which they were replaced; `None`: they are this build's.
fn replaced_at(programs: &SharedPrograms, kernel: &mut Kernel) -> Result<Option<usize>, StepError> {
    let replaced = match programs {
        SharedPrograms::Forwarding(programs) => {
            plan::renew_programs(kernel, &Place::Host, programs)?.map(|replaced| replaced.forward)
        }
        SharedPrograms::Guard(guard) => plan::renew_guard(kernel, &Place::Host, guard)?,
    };
    Ok(replaced.map(|replaced| replaced.links + replaced.filters))
}

fn what(programs: &SharedPrograms) -> &'static str {
    match programs {
        SharedPrograms::Forwarding(_) => "the programs that forward packets of pods",
        SharedPrograms::Guard(_) => "the programs that check what pods send",
    }
}

fn renew_services(settings: &Settings) {
    let Some(ServicesPlace { node, .. }) = settings.services_place() else { return };
    match plan::renew_services(&ServicePrograms { node }) {
        Ok(None) => {}
        Ok(Some(replaced)) => {
            info!(links = replaced.links, "the programs for Services are this version's now");
        }
        // What cannot be taken over is made anew with the first look.
        Err(error) => warn!("the programs for Services that are there cannot be replaced: {error}"),
    }
}
