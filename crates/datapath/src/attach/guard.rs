//! The check of what pods send, at links on which the kernel forwards (`guard.bpf.c`). It is an option of a network:
//! the set-ups that races compare have none.

use bpf::forward::Program;
use linux::IfName;
use plan::Step;
use plan::forwarding::{Guard, Guarded, ProgramAttachment};

use crate::draft::Draft;
use crate::{GuardHook, NodeSpec, Pod, links};

impl Draft<'_> {
    /// Loads the check for a network's pods on a node, where the network wants it.
    pub(super) fn guard(&mut self, node: &NodeSpec) {
        if node.network.anti_spoofing.is_some() {
            self.step(Step::LoadGuard(Guard { node: node.programs() }));
        }
    }

    /// Binds a pod to its addresses, where the network wants it. It comes before the pod's end of the link is up, so
    /// that it holds from the first packet on.
    pub(super) fn guarded(&mut self, node: &NodeSpec, pod: &Pod, link: &IfName) {
        let Some(hook) = node.network.anti_spoofing else { return };
        self.step(Step::AttachProgram(ProgramAttachment {
            node: node.programs(),
            program: Program::Guard,
            link: link.clone(),
            at_once: hook == GuardHook::Filter,
        }));
        self.step(Step::AddGuarded(Guarded {
            node: node.programs(),
            link: link.clone(),
            pod: pod.place.clone(),
            mac: links::pod_mac(node, pod),
            addresses: pod.addresses.iter().collect(),
        }));
    }
}
