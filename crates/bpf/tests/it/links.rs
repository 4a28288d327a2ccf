//! Programs at links: present once attached, and gone once detached.

use bpf::Attached;
use bpf::forward::Program;

use crate::node::{Node, ONE, can_run};

const TIMES: u32 = 20;

/// The kernel ends a pinned bpf link some time after its pin is removed, so what `detach` returns ends it at once.
#[test]
fn a_program_is_off_as_soon_as_it_was_taken_off() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let program = Program::FromPod;
    let pin = program.link_pin(&node.folder, &linux::IfName::new(ONE.link).unwrap());
    let index = node.index(ONE.link);
    for _ in 0..TIMES {
        let (how, then, held, after) = node
            .netns
            .run(|| {
                let how = bpf::attach(&program.pin(&node.folder), program.hook(), index, &pin).unwrap();
                let then = bpf::programs_at(index).unwrap();
                let unpinned = bpf::detach(how, index, &pin, how == Attached::Filter).unwrap();
                let held = bpf::programs_at(index).unwrap();
                drop(unpinned);
                (how, then, held, bpf::programs_at(index).unwrap())
            })
            .unwrap();
        if how == Attached::Filter {
            return testkit::skip("this kernel has no bpf links at tc");
        }
        assert_eq!(then, [("tcx ingress", program.name().to_owned())]);
        assert_eq!(held, then);
        assert_eq!(after, []);
        assert!(!pin.exists());
    }
}
